//! Reads and writes the frames that ZooKeeper's clients and servers exchange.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

pub(crate) async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> Option<()> {
    stream.write_u32(u32::try_from(frame.len()).ok()?).await.ok()?;
    stream.write_all(frame).await.ok()
}

pub(crate) fn read_number(frame: &[u8], at: usize) -> Option<i32> {
    let bytes = frame.get(at..)?.first_chunk()?;
    Some(i32::from_be_bytes(*bytes))
}
