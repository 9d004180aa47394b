//! How a connection begins: the frames without a letter.
//!
//! A wish for encryption is declined, because nobody could see a COMMIT in it. A cancel request goes straight on to the
//! server: it has a separate connection, which ends with it.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// PostgreSQL takes no longer one.
const PACKET_MAX: usize = 10_000;

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// What a client begins with.
#[derive(Debug, PartialEq, Eq)]
pub struct Startup {
    /// As it was read.
    pub packet: Vec<u8>,
    /// The application name that it gives.
    pub name: String,
}

/// Reads it; none when there is nothing to follow.
///
/// # Errors
/// The sockets', or a length that no such packet has.
pub async fn read(client: &mut TcpStream, upstream: SocketAddr) -> io::Result<Option<Startup>> {
    loop {
        let Some((code, packet)) = packet(client).await? else {
            return Ok(None);
        };
        match code {
            SSL | GSS => client.write_all(b"N").await?,
            CANCEL => {
                let mut server = TcpStream::connect(upstream).await?;
                server.write_all(&packet).await?;
                // The server answers with nothing but its end.
                server.read_u8().await.map(drop).or_else(ended)?;
                return Ok(None);
            }
            _ => {
                let name = name(&packet);
                return Ok(Some(Startup { packet, name }));
            }
        }
    }
}

async fn packet(client: &mut TcpStream) -> io::Result<Option<(u32, Vec<u8>)>> {
    let length = match client.read_u32().await {
        Ok(length) => length as usize,
        Err(error) => return ended(error).map(|()| None),
    };
    if !(8..=PACKET_MAX).contains(&length) {
        let problem = format!("a start-up packet with a length of {length}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut packet = vec![0; length];
    packet[..4].copy_from_slice(&(length as u32).to_be_bytes());
    client.read_exact(&mut packet[4..]).await?;
    let code = u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]]);
    Ok(Some((code, packet)))
}

fn ended(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Ok(()),
        _ => Err(error),
    }
}

/// The application name among the settings, which are pairs of zero-terminated texts.
fn name(packet: &[u8]) -> String {
    let mut texts = packet[8..].split(|byte| *byte == 0);
    while let (Some(key), Some(value)) = (texts.next(), texts.next()) {
        if key == b"application_name" {
            return String::from_utf8_lossy(value).into_owned();
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_known_by_its_application_name() {
        let packet = |settings: &str| [&[0; 8][..], settings.as_bytes()].concat();
        assert_eq!(
            name(&packet(
                "user\0application_name\0application_name\0a b\0database\0d\0\0"
            )),
            "a b"
        );
        assert_eq!(name(&packet("user\0u\0\0")), "");
        assert_eq!(name(&packet("")), "");
    }
}
