use admittance_tests::TEST_TIMEOUT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A client connection on which a test can read a reply piece by piece while it arrives.
pub(super) struct WireClient {
    stream: TcpStream,
    received_bytes: Vec<u8>,
}

impl WireClient {
    pub(super) async fn open(address: &str, head: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        Self {
            stream,
            received_bytes: Vec::new(),
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads up to and including this text, and returns what was read.
    pub(super) async fn read_until(&mut self, text: &str) -> String {
        let reading = async {
            loop {
                let received_text = String::from_utf8_lossy(&self.received_bytes).into_owned();
                if let Some(position) = received_text.find(text) {
                    let (prefix, rest) = received_text.split_at(position + text.len());
                    self.received_bytes = rest.as_bytes().to_vec();
                    return prefix.to_owned();
                }
                let mut buffer = [0; 65536];
                let length = self.stream.read(&mut buffer).await.unwrap();
                assert!(
                    length > 0,
                    "the connection ended after {received_text:?}, before {text:?}"
                );
                self.received_bytes.extend_from_slice(&buffer[..length]);
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, reading)
            .await
            .unwrap_or_else(|_| panic!("{text:?} does not arrive"))
    }

    pub(super) async fn read_to_end(&mut self) -> Vec<u8> {
        let reading = self.stream.read_to_end(&mut self.received_bytes);
        // The connection has ended even if reading fails, such as after a reset. So the result is ignored.
        let _ = tokio::time::timeout(TEST_TIMEOUT, reading).await.unwrap();
        std::mem::take(&mut self.received_bytes)
    }
}
