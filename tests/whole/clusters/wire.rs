use admittance_tests::NEVER;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A client connection on which a test can read a reply piece by piece while it arrives.
pub(super) struct WireClient {
    stream: TcpStream,
    read: Vec<u8>,
}

impl WireClient {
    pub(super) async fn open(address: &str, head: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads up to and including this text, and returns what was read.
    pub(super) async fn until(&mut self, text: &str) -> String {
        let reading = async {
            loop {
                let read = String::from_utf8_lossy(&self.read).into_owned();
                if let Some(at) = read.find(text) {
                    let (found, rest) = read.split_at(at + text.len());
                    self.read = rest.as_bytes().to_vec();
                    return found.to_owned();
                }
                let mut buffer = [0; 65536];
                let length = self.stream.read(&mut buffer).await.unwrap();
                assert!(length > 0, "the connection ended after {read:?}, before {text:?}");
                self.read.extend_from_slice(&buffer[..length]);
            }
        };
        tokio::time::timeout(NEVER, reading)
            .await
            .unwrap_or_else(|_| panic!("{text:?} does not arrive"))
    }

    pub(super) async fn ended(&mut self) -> Vec<u8> {
        let reading = self.stream.read_to_end(&mut self.read);
        // The connection has ended even if reading fails, such as after a reset. So the result is ignored.
        let _ = tokio::time::timeout(NEVER, reading).await.unwrap();
        std::mem::take(&mut self.read)
    }
}
