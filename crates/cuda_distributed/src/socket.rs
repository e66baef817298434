//! Ranks in processes of their own: rank 0 has the hub, and the others reach it through a socket.
//!
//! Both ends beat. A socket that stays silent for the timeout, or that ends without a goodbye, is
//! a lost rank.

use std::collections::VecDeque;
use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use crate::error::{Error, Failure};
use crate::hub::{Control, Hub, Member, Messages, News};

/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

/// No suspect, where a rank is expected.
const NOBODY: u32 = u32::MAX;

/// Where the ranks of a world find each other.
///
/// ```
/// use cuda_distributed::Rendezvous;
///
/// let address: Rendezvous = "node0:29511".parse().unwrap();
/// assert_eq!(address, Rendezvous::Address("node0:29511".to_owned()));
/// let file: Rendezvous = "file:/tmp/world".parse().unwrap();
/// assert_eq!(file, Rendezvous::File("/tmp/world".into()));
/// assert!("node0".parse::<Rendezvous>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// A host of rank 0 and a free port there, as in `node0:29511`.
    Address(String),
    /// A file that all ranks of one host see. Rank 0 writes its port into it, and removes it.
    File(PathBuf),
}

impl FromStr for Rendezvous {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match (text.strip_prefix("file:"), text.rsplit_once(':')) {
            (Some(path), _) if !path.is_empty() => Ok(Self::File(path.into())),
            (None, Some((host, port))) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Address(text.to_owned()))
            }
            _ => Err(Error::Rendezvous {
                place: text.to_owned(),
                reason: "it is neither HOST:PORT nor file:PATH".to_owned(),
            }),
        }
    }
}

impl fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => f.write_str(address),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl Rendezvous {
    fn error(&self, reason: impl fmt::Display) -> Error {
        Error::Rendezvous { place: self.to_string(), reason: reason.to_string() }
    }

    fn listen(&self) -> Result<TcpListener, Error> {
        let bound = match self {
            Self::Address(address) => TcpListener::bind(address),
            Self::File(_) => TcpListener::bind(("127.0.0.1", 0)),
        };
        let advice = "; choose a host of rank 0 and a port that no other program uses";
        let listener = bound.map_err(|error| self.error(format!("{error}{advice}")))?;
        if let Self::File(path) = self {
            let is_other = match fs::read_to_string(path) {
                Ok(text) => text.parse::<SocketAddr>().is_err(),
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            };
            if is_other {
                return Err(self.error("it holds no address of a rank 0; name a new file"));
            }
            let written = listener.local_addr().and_then(|address| {
                // Complete when it appears.
                let part = path.with_extension(format!("{}", std::process::id()));
                fs::File::create_new(&part)?.write_all(address.to_string().as_bytes())?;
                fs::rename(part, path)
            });
            written.map_err(|error| self.error(error))?;
        }
        Ok(listener)
    }

    /// Connects to rank 0, or fails soon after the deadline.
    fn connect(&self, deadline: Instant) -> io::Result<TcpStream> {
        let addresses: Vec<_> = match self {
            Self::Address(address) => address.to_socket_addrs()?.collect(),
            Self::File(path) => fs::read_to_string(path)?.to_socket_addrs()?.collect(),
        };
        let mut result = Err(io::Error::other("its name has no address"));
        for address in addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            // No time at all is not allowed.
            result = TcpStream::connect_timeout(&address, left.max(RETRY));
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Who a process is among the ranks.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Equal for all ranks of one job.
    pub(crate) job: String,
}

/// The kinds of frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// From a new rank: rank and size, with the job as text.
    Hello,
    /// From the hub: all ranks are here.
    Welcome,
    /// An exchange: the operation as text, with the message or with all messages.
    Exchange,
    /// A failure: the operation as text, with suspect and reason.
    Fail,
    /// A sign of life, with the number of operations begun.
    Beat,
    /// The end of the connection in good order.
    Goodbye,
}

const KINDS: [Kind; 6] =
    [Kind::Hello, Kind::Welcome, Kind::Exchange, Kind::Fail, Kind::Beat, Kind::Goodbye];

struct Frame {
    kind: Kind,
    text: String,
    bytes: Vec<u8>,
}

impl Frame {
    fn new(kind: Kind, text: &str, bytes: Vec<u8>) -> Self {
        Self { kind, text: text.to_owned(), bytes }
    }

    fn fail(failure: &Failure) -> Self {
        let mut bytes = (failure.suspect as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(failure.reason.as_bytes());
        Self::new(Kind::Fail, &failure.operation, bytes)
    }

    /// The suspect of a failure, if there is one, and the reason.
    fn failure(&self) -> (Option<usize>, String) {
        let (suspect, reason) = self.bytes.split_at_checked(4).unwrap_or_default();
        let suspect = suspect.try_into().map_or(NOBODY, u32::from_le_bytes);
        let reason = String::from_utf8_lossy(reason).into_owned();
        ((suspect != NOBODY).then_some(suspect as usize), reason)
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default();
        let mut bytes = vec![kind as u8];
        bytes.extend_from_slice(&(self.text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.bytes.len() as u64).to_le_bytes());
        bytes.extend_from_slice(self.text.as_bytes());
        bytes.extend_from_slice(&self.bytes);
        to.write_all(&bytes)
    }

    fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 13];
        from.read_exact(&mut head)?;
        let [kind, a, b, c, d, len @ ..] = head;
        let kind = KINDS.get(usize::from(kind)).copied();
        let kind = kind.ok_or_else(|| io::Error::other("it speaks another protocol"))?;
        let mut part = |len: u64| {
            let mut bytes = Vec::new();
            // Grows with what arrives, so that a broken length costs no memory.
            from.take(len).read_to_end(&mut bytes)?;
            let is_whole = bytes.len() as u64 == len;
            is_whole.then_some(bytes).ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))
        };
        let text = part(u64::from(u32::from_le_bytes([a, b, c, d])))?;
        let bytes = part(u64::from_le_bytes(len))?;
        Ok(Self { kind, text: String::from_utf8_lossy(&text).into_owned(), bytes })
    }
}

/// All messages of an exchange as bytes.
fn pack(messages: &[Vec<u8>]) -> Vec<u8> {
    let with_length =
        |message: &Vec<u8>| [&(message.len() as u64).to_le_bytes()[..], message].concat();
    messages.iter().flat_map(with_length).collect()
}

fn unpack(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk()?;
        let (message, rest) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
        messages.push(message.to_vec());
        bytes = rest;
    }
    Some(messages)
}

/// Prepares a connection: a silent peer is an error after the timeout.
fn prepare(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))
}

/// What a broken connection says about its other end.
fn lost(error: &io::Error, timeout: Duration) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("gave no sign of life for {} s", timeout.as_secs_f32())
        }
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe => "ended without leaving the world".to_owned(),
        _ => format!("cannot be reached: {error}"),
    }
}

/// Meets the other ranks.
pub(crate) fn join(
    place: &Rendezvous,
    identity: &Identity,
    timeout: Duration,
) -> Result<Box<dyn Control>, Error> {
    match identity.rank {
        0 => Ok(Box::new(Server::open(place, identity, timeout)?)),
        _ => Ok(Box::new(Spoke::open(place, identity, timeout)?)),
    }
}

/// Rank 0: the hub, and a connection to each other rank.
struct Server {
    /// `None` once dropped.
    member: Option<Member>,
    writers: Vec<JoinHandle<()>>,
}

impl Server {
    fn open(place: &Rendezvous, identity: &Identity, timeout: Duration) -> Result<Self, Error> {
        let size = identity.size;
        let listener = place.listen()?;
        let accepted = accept(place, identity, &listener, timeout);
        if let Rendezvous::File(path) = place {
            // The next world may use the file. It may be gone already.
            _ = fs::remove_file(path);
        }
        let hub = Arc::new(Hub::new(size, timeout));
        let mut writers = Vec::new();
        for (rank, stream) in accepted?.into_iter().enumerate() {
            let Some(stream) = stream else { continue };
            let (outbox, news) = mpsc::channel();
            hub.connect(rank, outbox);
            let reader = stream.try_clone().map_err(|error| place.error(error))?;
            let (for_reader, for_writer) = (Arc::clone(&hub), Arc::clone(&hub));
            thread::spawn(move || listen(&for_reader, rank, reader));
            writers.push(thread::spawn(move || tell(&for_writer, rank, stream, &news)));
        }
        Ok(Self { member: Some(Member::new(hub, 0)), writers })
    }

    fn member(&self) -> &Member {
        self.member.as_ref().expect("it is there until the drop")
    }
}

/// Accepts each rank of this job once.
fn accept(
    place: &Rendezvous,
    identity: &Identity,
    listener: &TcpListener,
    timeout: Duration,
) -> Result<Vec<Option<TcpStream>>, Error> {
    let size = identity.size;
    let mut streams: Vec<Option<TcpStream>> = (0..size).map(|_| None).collect();
    listener.set_nonblocking(true).map_err(|error| place.error(error))?;
    let deadline = Instant::now() + timeout;
    while let Some(missing) = (1..size).find(|rank| streams[*rank].is_none()) {
        match listener.accept() {
            Ok((stream, _)) => {
                // Whoever is not of this world is sent away, and does not end it.
                if let Ok(rank) = greet(&stream, identity, &streams, timeout) {
                    streams[rank] = Some(stream);
                }
            }
            Err(_) if Instant::now() < deadline => thread::sleep(RETRY),
            Err(_) => {
                let seconds = timeout.as_secs_f32();
                let reason = format!("rank {missing} did not come within {seconds} s; start it");
                return Err(place.error(reason));
            }
        }
    }
    for stream in streams.iter().flatten() {
        // A broken connection is found by its reader.
        _ = Frame::new(Kind::Welcome, "", Vec::new()).write(&mut &*stream);
    }
    Ok(streams)
}

/// The rank at the other end of a new connection, if it belongs here.
fn greet(
    stream: &TcpStream,
    identity: &Identity,
    present: &[Option<TcpStream>],
    timeout: Duration,
) -> io::Result<usize> {
    prepare(stream, timeout.min(Duration::from_secs(2)))?;
    let hello = Frame::read(&mut &*stream)?;
    prepare(stream, timeout)?;
    let number = |at: usize| {
        let bytes = hello.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
    };
    let (rank, size) = (number(0), number(4));
    let wrong = match () {
        () if hello.kind != Kind::Hello => "the first message is no hello".to_owned(),
        () if hello.text != identity.job => format!("rank 0 belongs to job `{}`", identity.job),
        () if size != identity.size => format!("rank 0 has a world of {} ranks", identity.size),
        () if !(1..size).contains(&rank) || present[rank].is_some() => {
            format!("there is a rank {rank} already; give each process a rank of its own")
        }
        () => return Ok(rank),
    };
    let failure = Failure { operation: "the rendezvous".to_owned(), suspect: 0, reason: wrong };
    Frame::fail(&failure).write(&mut &*stream)?;
    Err(io::Error::other(failure.reason))
}

/// Hands what a rank says to the hub.
fn listen(hub: &Hub, rank: usize, stream: TcpStream) {
    let mut stream = BufReader::new(stream);
    loop {
        match Frame::read(&mut stream) {
            Ok(Frame { kind: Kind::Exchange, text, bytes }) => hub.deposit(rank, &text, bytes),
            Ok(frame) if frame.kind == Kind::Fail => {
                let (suspect, reason) = frame.failure();
                hub.fail(&frame.text, suspect, reason);
            }
            Ok(Frame { kind: Kind::Beat, bytes, .. }) => {
                hub.note_begun(rank, bytes.try_into().map_or(0, u64::from_le_bytes));
            }
            Ok(Frame { kind: Kind::Goodbye, .. }) => return hub.leave(rank),
            Ok(_) => return hub.fail("the work of a rank", Some(rank), "is confused".to_owned()),
            Err(error) => {
                let reason = lost(&error, hub.timeout);
                return hub.fail("the work of a rank", Some(rank), reason);
            }
        }
    }
}

/// Writes a rank's news to its socket until there are no more.
fn tell(hub: &Hub, rank: usize, mut stream: TcpStream, news: &Receiver<News>) {
    for news in news {
        let frame = match news {
            News::Gathered(messages) => Frame::new(Kind::Exchange, "", pack(&messages)),
            News::Failed(failure) => Frame::fail(&failure),
            News::Beat => Frame::new(Kind::Beat, "", Vec::new()),
        };
        if let Err(error) = frame.write(&mut stream) {
            return hub.fail("the work of a rank", Some(rank), lost(&error, hub.timeout));
        }
    }
    // The other end may be gone.
    _ = Frame::new(Kind::Goodbye, "", Vec::new()).write(&mut stream);
}

impl Control for Server {
    fn exchange(&self, operation: &str, message: Vec<u8>) -> Result<Messages, Error> {
        self.member().exchange(operation, message)
    }

    fn failure(&self) -> Option<Failure> {
        self.member().failure()
    }

    fn fail(&self, operation: &str, suspect: Option<usize>, reason: String) {
        self.member().fail(operation, suspect, reason);
    }

    fn begin(&self) {
        self.member().begin();
    }

    fn beat(&self) {
        self.member().beat();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            let hub = Arc::clone(&member.hub);
            drop(member);
            hub.disconnect();
        }
        // The last news get out. Each write ends within the timeout.
        for writer in self.writers.drain(..) {
            _ = writer.join();
        }
    }
}

/// Any other rank: a connection to rank 0.
struct Spoke {
    shared: Arc<SpokeShared>,
    stream: Mutex<TcpStream>,
    /// Held for an exchange, so that two threads of the rank do not mix their messages.
    turn: Mutex<()>,
    begun: AtomicU64,
    timeout: Duration,
}

struct SpokeShared {
    news: Mutex<SpokeNews>,
    changed: Condvar,
}

#[derive(Default)]
struct SpokeNews {
    gathered: VecDeque<Vec<Vec<u8>>>,
    failure: Option<Failure>,
    /// The operation in progress.
    operation: String,
    /// Rank 0 has left in good order.
    has_left: bool,
}

impl SpokeShared {
    fn lock(&self) -> MutexGuard<'_, SpokeNews> {
        // No change is left half-done.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, operation: Option<&str>, suspect: usize, reason: String) {
        let mut news = self.lock();
        let operation = operation.unwrap_or(match &*news.operation {
            "" => "the work of a rank",
            operation => operation,
        });
        let operation = operation.to_owned();
        news.failure.get_or_insert(Failure { operation, suspect, reason });
        self.changed.notify_all();
    }

    /// Keeps what rank 0 says, until the connection ends.
    fn listen(&self, stream: TcpStream, timeout: Duration) {
        let mut stream = BufReader::new(stream);
        loop {
            match Frame::read(&mut stream) {
                Ok(Frame { kind: Kind::Exchange, bytes, .. }) => {
                    let mut news = self.lock();
                    news.gathered.extend(unpack(&bytes));
                    self.changed.notify_all();
                }
                Ok(Frame { kind: Kind::Beat, .. }) => {}
                Ok(frame) if frame.kind == Kind::Fail => {
                    let (suspect, reason) = frame.failure();
                    return self.fail(Some(&frame.text), suspect.unwrap_or(0), reason);
                }
                Ok(_) => {
                    self.lock().has_left = true;
                    return self.changed.notify_all();
                }
                Err(error) => return self.fail(None, 0, lost(&error, timeout)),
            }
        }
    }
}

impl Spoke {
    fn open(place: &Rendezvous, identity: &Identity, timeout: Duration) -> Result<Self, Error> {
        let deadline = Instant::now() + timeout;
        let stream = loop {
            match place.connect(deadline) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < deadline => thread::sleep(RETRY),
                Err(error) => {
                    let reason = format!("rank 0 is not there: {error}; start it");
                    return Err(place.error(reason));
                }
            }
        };
        let hello = [identity.rank, identity.size].map(|number| (number as u32).to_le_bytes());
        let hello = Frame::new(Kind::Hello, &identity.job, hello.concat());
        let greeted = prepare(&stream, timeout)
            .and_then(|()| hello.write(&mut &stream))
            .and_then(|()| Frame::read(&mut &stream));
        match greeted {
            Ok(frame) if frame.kind == Kind::Welcome => {}
            Ok(frame) => return Err(place.error(frame.failure().1)),
            Err(error) => return Err(place.error(format!("rank 0 {}", lost(&error, timeout)))),
        }
        let news = Mutex::default();
        let shared = Arc::new(SpokeShared { news, changed: Condvar::new() });
        let reader = stream.try_clone().map_err(|error| place.error(error))?;
        let for_reader = Arc::clone(&shared);
        thread::spawn(move || for_reader.listen(reader, timeout));
        let (stream, turn) = (Mutex::new(stream), Mutex::default());
        Ok(Self { shared, stream, turn, begun: AtomicU64::new(0), timeout })
    }

    fn send(&self, frame: &Frame) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(error) = frame.write(&mut *stream) else { return };
        // A connection that was closed has its last news: the reader finds whether it is in order.
        let is_closed =
            matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        if !is_closed && !self.shared.lock().has_left {
            self.shared.fail(None, 0, lost(&error, self.timeout));
        }
    }

    /// Waits until `ready` has a result.
    fn wait<R>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut SpokeNews) -> Option<R>,
    ) -> Option<R> {
        let mut news = self.shared.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match ready(&mut news) {
                None if left.is_zero() => return None,
                None => {}
                result => return result,
            }
            let waited = self.shared.changed.wait_timeout(news, left);
            news = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Control for Spoke {
    fn exchange(&self, operation: &str, message: Vec<u8>) -> Result<Messages, Error> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin();
        self.shared.lock().operation = operation.to_owned();
        self.send(&Frame::new(Kind::Exchange, operation, message));
        // Rank 0 finds a late rank first, and says which one it is.
        let deadline = Instant::now() + self.timeout + self.timeout / 4;
        let result = self.wait(deadline, |news| match (news.gathered.pop_front(), &news.failure) {
            (Some(gathered), _) => Some(Ok(Arc::new(gathered))),
            (None, Some(failure)) => Some(Err(failure.clone().into())),
            (None, None) if news.has_left => Some(Err(Failure::left(operation, 0).into())),
            (None, None) => None,
        });
        self.shared.lock().operation.clear();
        result.unwrap_or_else(|| {
            let failure = Failure::late(operation, 0, self.timeout);
            self.fail(operation, Some(0), failure.reason.clone());
            Err(failure.into())
        })
    }

    fn failure(&self) -> Option<Failure> {
        self.shared.lock().failure.clone()
    }

    fn fail(&self, operation: &str, suspect: Option<usize>, reason: String) {
        let mut bytes = suspect.map_or(NOBODY, |rank| rank as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(reason.as_bytes());
        self.send(&Frame::new(Kind::Fail, operation, bytes));
        // Rank 0 knows who began fewest operations.
        let deadline = Instant::now() + self.timeout.min(Duration::from_secs(1));
        self.wait(deadline, |news| news.failure.is_some().then_some(()));
        self.shared.fail(Some(operation), suspect.unwrap_or(0), reason);
    }

    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn beat(&self) {
        let begun = self.begun.load(Ordering::Relaxed).to_le_bytes().to_vec();
        self.send(&Frame::new(Kind::Beat, "", begun));
    }
}

impl Drop for Spoke {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        self.send(&Frame::new(Kind::Goodbye, "", Vec::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_rendezvous_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine");
        let listen = || Rendezvous::File(path.clone()).listen();
        fs::write(&path, "precious").unwrap();
        let error = listen().unwrap_err().to_string();
        assert!(error.ends_with("it holds no address of a rank 0; name a new file"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        // What a world before has left is overwritten.
        fs::write(&path, "127.0.0.1:5000").unwrap();
        let own = listen().unwrap().local_addr().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own.to_string());
    }

    #[test]
    fn rank_0_may_leave_first() {
        let timeout = Duration::from_secs(10);
        let name = format!("cuda-distributed-{}-leaves", std::process::id());
        let place = Rendezvous::File(std::env::temp_dir().join(name));
        let identity = |rank| Identity { rank, size: 2, job: String::new() };
        thread::scope(|scope| {
            scope.spawn(|| drop(Server::open(&place, &identity(0), timeout).unwrap()));
            let spoke = Spoke::open(&place, &identity(1), timeout).unwrap();
            // Until the connection is surely closed.
            let deadline = Instant::now() + timeout;
            spoke.wait(deadline, |news| news.has_left.then_some(())).unwrap();
            for _ in 0..10 {
                spoke.beat();
                thread::sleep(Duration::from_millis(2));
            }
            assert_eq!(spoke.failure(), None);
        });
    }
}
