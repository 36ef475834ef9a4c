//! How processes of one machine, once they are connected by TCP, connect without it: one listens at
//! a random name, and tells the other that name and a word that nobody else knows.
//!
//! Names are those that Linux keeps apart from files ("abstract" ones, unix(7)): nothing is left
//! behind by a process that is killed. Elsewhere, and between containers that do not share them,
//! TCP remains.

use std::net::TcpStream;

use super::stream::Stream;

#[cfg(target_os = "linux")]
pub(super) use linux::{Offer, take};

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, ErrorKind, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::time::{Duration, Instant};

    use super::super::frame::Patience;
    use super::{Stream, TcpStream};

    /// Bytes of the name, and of the word.
    const LENGTH: usize = 16;
    /// How long the other process, which has connected already, may take to say the word.
    const TIME: Duration = Duration::from_secs(5);
    /// Bytes that wait to be read: the fewer times the reader is woken up for them, the better.
    const WAITING: usize = 2 << 20;

    /// Where another process may connect.
    #[derive(Debug)]
    pub(in super::super) struct Offer {
        listener: UnixListener,
        secret: [u8; 2 * LENGTH],
    }

    impl Offer {
        /// For the process at the other end of `stream`, if it is on this machine.
        pub(in super::super) fn to(stream: &TcpStream) -> Option<Self> {
            if stream.local_addr().ok()?.ip() != stream.peer_addr().ok()?.ip() {
                return None;
            }
            let mut secret = [0; 2 * LENGTH];
            getrandom::fill(&mut secret).ok()?;
            let listener = UnixListener::bind_addr(&address(&secret)?).ok()?;
            Some(Self { listener, secret })
        }

        /// What the other process has to know.
        pub(in super::super) fn secret(&self) -> &[u8] {
            &self.secret
        }

        /// The connection of the other process, which says that it has connected. Whoever else has
        /// is sent away.
        ///
        /// # Errors
        /// It cannot be heard.
        pub(in super::super) fn accept(&self) -> io::Result<Stream> {
            let deadline = Instant::now() + TIME;
            self.listener.set_nonblocking(true)?;
            while Instant::now() < deadline {
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                let mut word = [0; LENGTH];
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(TIME))?;
                let heard = Patience { beat: TIME, beats: 1 }.read(&stream, &mut word);
                if heard.is_ok() && word == self.secret[LENGTH..] {
                    return ready(stream);
                }
            }
            Err(ErrorKind::TimedOut.into())
        }
    }

    /// The connection to a process that offers one; none where it cannot be reached so.
    pub(in super::super) fn take(secret: &[u8]) -> Option<Stream> {
        let secret = secret.try_into().ok()?;
        let mut stream = UnixStream::connect_addr(&address(secret)?).ok()?;
        stream.write_all(&secret[LENGTH..]).ok()?;
        ready(stream).ok()
    }

    fn address(secret: &[u8; 2 * LENGTH]) -> Option<SocketAddr> {
        let name: String = secret[..LENGTH].iter().map(|byte| format!("{byte:02x}")).collect();
        SocketAddr::from_abstract_name(format!("taper-{name}")).ok()
    }

    fn ready(stream: UnixStream) -> io::Result<Stream> {
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, WAITING)?;
        Ok(Stream::Local(stream))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::io::Read;
        use std::net::TcpListener;

        #[test]
        fn only_who_knows_the_word_is_a_neighbour() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let offer = Offer::to(&far).expect("the same machine");
            let mut secret: [u8; 2 * LENGTH] = offer.secret().try_into().unwrap();
            let near = take(&secret).expect("there");
            // Before it, one that says another word and one that says nothing.
            let other = Offer::to(&far).expect("the same machine");
            let mut wrong: [u8; 2 * LENGTH] = other.secret().try_into().unwrap();
            wrong[LENGTH] ^= 1;
            let _wrong = take(&wrong).expect("connected");
            drop(UnixStream::connect_addr(&address(&wrong).unwrap()).unwrap());
            let right = take(other.secret()).expect("connected");
            let accepted = other.accept().expect("the third");
            (&right).write_all(b"a").unwrap();
            let mut byte = [0];
            (&accepted).read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"a");
            (&offer.accept().expect("the only one")).write_all(b"b").unwrap();
            (&near).read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"b");
            assert!(offer.accept().is_err(), "nobody else");
            secret[0] ^= 1;
            assert!(take(&secret).is_none() && take(&[]).is_none(), "no such name");
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{Offer, take};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{Stream, TcpStream};
    use std::io;

    /// None is ever made.
    #[derive(Debug)]
    pub(in super::super) enum Offer {}

    impl Offer {
        pub(in super::super) fn to(_: &TcpStream) -> Option<Self> {
            None
        }

        pub(in super::super) fn secret(&self) -> &[u8] {
            match *self {}
        }

        pub(in super::super) fn accept(&self) -> io::Result<Stream> {
            match *self {}
        }
    }

    pub(in super::super) fn take(_: &[u8]) -> Option<Stream> {
        None
    }
}
