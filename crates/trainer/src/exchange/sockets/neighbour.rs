//! Connections by Unix sockets, without TCP, between processes on one machine. The processes are
//! connected by TCP first. Then one process listens at a socket with a random name, and sends this
//! name and a secret word to the other over TCP.
//!
//! The names are Linux's "abstract" socket names, which are not files (unix(7)): a killed process
//! leaves nothing behind. On other systems, and between containers that do not share these names,
//! TCP stays in use.

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

    /// Number of bytes of the random part of the socket's name, and also of the secret word. The
    /// variables called `secret` contain the random part of the name, followed by the word.
    const LENGTH: usize = 16;
    /// Size of the socket's send buffer, in bytes. The larger the buffer, the less often the reader
    /// is woken up.
    const WAITING: usize = 2 << 20;

    /// Listener at a random name, to which a process that knows the secret can connect.
    #[derive(Debug)]
    pub(in super::super) struct Offer {
        listener: UnixListener,
        secret: [u8; 2 * LENGTH],
    }

    impl Offer {
        /// Makes an offer to the process at the other end of `stream`. Returns `None` if that
        /// process is not on this machine, or no socket can be made.
        pub(in super::super) fn to(stream: &TcpStream) -> Option<Self> {
            let [here, there] = [stream.local_addr(), stream.peer_addr()];
            let (here, there) = (here.ok()?.ip().to_canonical(), there.ok()?.ip().to_canonical());
            // A machine can have several loopback addresses.
            if here != there && !(here.is_loopback() && there.is_loopback()) {
                return None;
            }
            let mut secret = [0; 2 * LENGTH];
            getrandom::fill(&mut secret).ok()?;
            let listener = UnixListener::bind_addr(&address(&secret)?).ok()?;
            Some(Self { listener, secret })
        }

        /// Bytes to send to the other process: the random part of the name, followed by the secret
        /// word.
        pub(in super::super) fn secret(&self) -> &[u8] {
            &self.secret
        }

        /// Returns the connection of the other process. That process must have reported that it has
        /// connected and sent the secret word, so this does not wait. Other connections are closed.
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

    /// Connects to the process whose offer has this `secret`. Returns `None` if it cannot be
    /// reached by a Unix socket.
    pub(in super::super) fn take(secret: &[u8]) -> Option<Stream> {
        let secret: &[u8; 2 * LENGTH] = secret.try_into().ok()?;
        // The socket is non-blocking, so that connecting does not wait if other programs have
        // filled the listener's queue.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
        let address = SocketAddrUnix::new_abstract_name(name(secret).as_bytes()).ok()?;
        connect(&socket, &address).ok()?;
        let mut stream = UnixStream::from(socket);
        // Writing does not wait, because the buffer of a new connection has room for the word.
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
        fn processes_at_two_loopback_addresses_are_neighbours() {
            let listener = TcpListener::bind("127.0.1.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert!(Offer::to(&stream).is_some(), "{stream:?}");
        }

        #[test]
        fn only_who_knows_the_word_is_a_neighbour() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let offer = Offer::to(&far).expect("the same machine");
            let mut secret: [u8; 2 * LENGTH] = offer.secret().try_into().unwrap();
            let near = take(&secret).expect("there");
            // Three other callers connect first: one with another secret, one that closes the
            // connection, and one that sends nothing.
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

    /// Type without values: on this system, there are no abstract socket names, so
    /// [`Offer::to`] always returns `None`.
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
