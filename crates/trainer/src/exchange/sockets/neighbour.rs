//! Connections between processes on one machine without TCP, which they make once they are
//! connected by TCP: one process listens at a random name, and sends the other this name and a
//! secret.
//!
//! The names are Linux's "abstract" ones, which are not files (unix(7)): a killed process leaves
//! nothing behind. On other systems, and between containers that do not share these names, TCP
//! stays in use.

use std::net::TcpStream;

use super::stream::Stream;

#[cfg(target_os = "linux")]
pub(super) use linux::{Offer, take};

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, Read, Write};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    use subtle::ConstantTimeEq;

    use super::{Stream, TcpStream};

    /// Number of bytes of the name, and of the secret.
    const LENGTH: usize = 16;
    /// Size of the receive buffer in bytes: a larger one wakes the reader up less often.
    const WAITING: usize = 2 << 20;

    /// Address to which another process may connect.
    #[derive(Debug)]
    pub(in super::super) struct Offer {
        listener: UnixListener,
        secret: [u8; 2 * LENGTH],
    }

    impl Offer {
        /// Offer to the process at the other end of `stream`, if it is on this machine.
        pub(in super::super) fn to(stream: &TcpStream) -> Option<Self> {
            if stream.local_addr().ok()?.ip() != stream.peer_addr().ok()?.ip() {
                return None;
            }
            let mut secret = [0; 2 * LENGTH];
            getrandom::fill(&mut secret).ok()?;
            let listener = UnixListener::bind_addr(&address(&secret)?).ok()?;
            Some(Self { listener, secret })
        }

        /// Secret for the other process.
        pub(in super::super) fn secret(&self) -> &[u8] {
            &self.secret
        }

        /// Connection of the other process, which has reported that it has connected and sent the
        /// secret, so that no waiting is necessary. Other callers are turned away.
        ///
        /// # Errors
        /// If the listener fails.
        pub(in super::super) fn accept(&self) -> io::Result<Stream> {
            self.listener.set_nonblocking(true)?;
            loop {
                let (mut stream, _) = self.listener.accept()?;
                stream.set_nonblocking(true)?;
                let mut word = [0; LENGTH];
                if stream.read_exact(&mut word).is_ok()
                    && bool::from(word.ct_eq(&self.secret[LENGTH..]))
                {
                    return ready(stream);
                }
            }
        }
    }

    /// Connection to a process that offers one; `None` if it cannot be reached in this way.
    pub(in super::super) fn take(secret: &[u8]) -> Option<Stream> {
        let secret: &[u8; 2 * LENGTH] = secret.try_into().ok()?;
        // Does not wait if strangers have filled the queue.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        let address = SocketAddrUnix::new_abstract_name(name(secret).as_bytes()).ok()?;
        connect(&socket, &address).ok()?;
        let mut stream = UnixStream::from(socket);
        // The buffer of a new connection has room for it.
        stream.write_all(&secret[LENGTH..]).ok()?;
        ready(stream).ok()
    }

    fn name(secret: &[u8; 2 * LENGTH]) -> String {
        let random: String = secret[..LENGTH].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("taper-{random}")
    }

    fn address(secret: &[u8; 2 * LENGTH]) -> Option<SocketAddr> {
        SocketAddr::from_abstract_name(name(secret)).ok()
    }

    fn ready(stream: UnixStream) -> io::Result<Stream> {
        stream.set_nonblocking(false)?;
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, WAITING)?;
        Ok(Stream::Local(stream))
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::net::TcpListener;

        #[test]
        fn only_who_knows_the_word_is_a_neighbour() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let offer = Offer::to(&far).expect("the same machine");
            let mut secret: [u8; 2 * LENGTH] = offer.secret().try_into().unwrap();
            let near = take(&secret).expect("there");
            // Before it come a caller with another secret, a caller that is gone, and one that
            // sends nothing.
            let other = Offer::to(&far).expect("the same machine");
            let mut wrong: [u8; 2 * LENGTH] = other.secret().try_into().unwrap();
            wrong[LENGTH] ^= 1;
            let _wrong = take(&wrong).expect("connected");
            drop(UnixStream::connect_addr(&address(&wrong).unwrap()).unwrap());
            let _silent = UnixStream::connect_addr(&address(&wrong).unwrap()).unwrap();
            let right = take(other.secret()).expect("connected");
            let accepted = other.accept().expect("the fourth");
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

    /// An offer that is never made.
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
