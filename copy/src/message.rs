//! Control messages between the two ends of a copy, one JSON object each.
//!
//! No message contains a path. Directories are entered and left, and every entry has a name of one
//! component. So `../x` cannot be expressed.

use serde::{Deserialize, Serialize};
use spanwire_host::text::printable;
use std::fmt;

/// The protocol name that both ends pass on connecting; it includes the version.
pub const PROTOCOL: &str = "spanwire-copy/4";

/// A control message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// The sender requests a copy.
    Request(Request),
    /// The receiver accepts it.
    Accept(Accept),
    /// The first message of a further connection of an accepted copy, and the only one.
    Join {
        /// That of the accept.
        token: String,
        /// Number of the connection; the first one has 0.
        connection: u32,
    },
    /// The receiver has all connections of a copy with several. The sender's entries follow.
    Joined,
    /// The sender's next entry. Each is answered by `done` or `refused`.
    Entry(Entry),
    /// The receiver has this many bytes of the file, all of it or from an earlier attempt. It
    /// answers the entry once it has received the sender's hash of them.
    Have {
        /// Number of the entry.
        index: u64,
        /// Bytes it has.
        bytes: u64,
    },
    /// The sender's hash of the bytes that the receiver has. The receiver never sends its own
    /// first: a sender without the file must not learn its hash.
    Hash {
        /// Number of the entry.
        index: u64,
        /// SHA-256 of the first `bytes` of `have`.
        sha256: Sha256Hex,
    },
    /// The sender gives up a file whose hash the receiver awaits.
    GiveUp {
        /// Number of the entry.
        index: u64,
        /// Reason, for people.
        reason: String,
    },
    /// The receiver requests this file's bytes from `offset` on.
    Want {
        /// Number of the entry.
        index: u64,
        /// Bytes that are kept: those of `have` if the hashes are equal, else 0.
        offset: u64,
    },
    /// The entry has its final name.
    Done {
        /// Number of the entry.
        index: u64,
        /// Hash of a file, as the receiver computed it.
        sha256: Option<Sha256Hex>,
    },
    /// The entry is rejected. Others may still succeed.
    Refused {
        /// Number of the entry.
        index: u64,
        /// Reason, for people.
        reason: String,
    },
    /// The sender has no more entries.
    Finish,
    /// All entries are on the receiver's disk.
    Finished,
}

impl Message {
    /// The message in a sentence, without its content.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "a request",
            Self::Accept(_) => "an accept",
            Self::Join { .. } => "a further connection",
            Self::Joined => "the arrival of all connections",
            Self::Entry(_) => "an entry",
            Self::Have { .. } => "the size of existing data",
            Self::Hash { .. } => "a hash",
            Self::GiveUp { .. } => "a file given up",
            Self::Want { .. } => "a request for data",
            Self::Done { .. } => "a finished entry",
            Self::Refused { .. } => "a refused entry",
            Self::Finish => "the end of the entries",
            Self::Finished => "the end of the copy",
        }
    }
}

/// The sender's request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Bytes of all files, as counted before the start. The receiver takes no more.
    pub bytes: u64,
    /// Files, as counted before the start. The receiver takes no more.
    pub files: u64,
    /// Files, directories and symbolic links, likewise.
    pub entries: u64,
    /// The receiver reads every file back from disk, and compares it with its hash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify_disk: bool,
    /// Connections that the sender can use.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub connections: u32,
    /// The top-level names, by which the receiver finds existing files; empty if there are too
    /// many.
    pub roots: Vec<Name>,
}

/// The receiver's terms.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accept {
    /// Limit of unanswered entries.
    pub window: u32,
    /// Connections of the copy, at most as many as requested. The sender opens all but the first
    /// one at once, and sends [`Message::Join`] over each.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub connections: u32,
    /// Identifies this copy to the receiver; empty with a single connection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
}

/// One entry to be created at the receiver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Counts up from 0.
    pub index: u64,
    /// The kind of the entry.
    #[serde(flatten)]
    pub kind: EntryKind,
}

/// The kind of an entry.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EntryKind {
    /// Enters a directory of the current one.
    Dir {
        /// Its name.
        name: Name,
    },
    /// Leaves the current directory, which gets its mode and time now that its content is complete.
    DirEnd {
        /// Permission bits.
        mode: u32,
        /// Modification time.
        mtime: Mtime,
    },
    /// A file of the current directory.
    File {
        /// Its name.
        name: Name,
        /// Bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
        /// Modification time.
        mtime: Mtime,
    },
    /// A symbolic link of the current directory.
    Symlink {
        /// Its name.
        name: Name,
        /// The target of the link. It is never followed.
        target: LinkTarget,
    },
}

/// A modification time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mtime {
    /// Seconds since 1970.
    pub s: i64,
    /// Nanoseconds of the second, below 10^9.
    pub ns: u32,
}

/// One component of a path: not empty, not `.` or `..`, at most 255 bytes, without `/` and NUL.
/// In JSON a string, or a list of bytes if it is not UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Name(Vec<u8>);

/// The target of a symbolic link: 1 to 4095 bytes without NUL. In JSON as [`Name`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct LinkTarget(Vec<u8>);

/// A SHA-256, in JSON 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Hex(pub [u8; 32]);

/// Bytes that usually are text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Bytes {
    Text(String),
    Raw(Vec<u8>),
}

impl Name {
    /// The name `bytes`.
    ///
    /// # Errors
    /// It is not a single component, or is reserved for partial files; the text says which.
    pub fn new(bytes: Vec<u8>) -> Result<Self, String> {
        let why = match &*bytes {
            b"" => "it is empty",
            b"." | b".." => "it names no entry of the directory",
            b if b.len() > NAME_BYTES_MAX => "it is longer than 255 bytes",
            b if b.contains(&b'/') => "it has a slash",
            b if b.contains(&0) => "it has a zero byte",
            b if b.starts_with(b".") && b.ends_with(PARTIAL_SUFFIX) => {
                "names of that kind are kept for files under way"
            }
            _ => return Ok(Self(bytes)),
        };
        Err(format!("the name \"{}\" is not taken: {why}", printable(&bytes)))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name of its partial file: hidden, in the same directory, within the same length limit.
    #[must_use]
    pub fn partial(&self) -> Vec<u8> {
        let mut name = b".".to_vec();
        if self.0.len() + 1 + PARTIAL_SUFFIX.len() <= NAME_BYTES_MAX {
            name.extend_from_slice(&self.0);
        } else {
            // The hash distinguishes long names that differ only at their ends.
            let hash = <sha2::Sha256 as sha2::Digest>::digest(&self.0);
            name.extend_from_slice(&self.0[..PARTIAL_STEM_BYTES]);
            for byte in &hash[..8] {
                name.extend_from_slice(format!("{byte:02x}").as_bytes());
            }
        }
        name.extend_from_slice(PARTIAL_SUFFIX);
        name
    }
}

impl LinkTarget {
    /// The target `bytes`.
    ///
    /// # Errors
    /// It is no valid link target.
    pub fn new(bytes: Vec<u8>) -> Result<Self, String> {
        match bytes.len() {
            1..=TARGET_BYTES_MAX if !bytes.contains(&0) => Ok(Self(bytes)),
            _ => Err(format!("no link can point at \"{}\"", printable(&bytes))),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl TryFrom<Bytes> for Name {
    type Error = String;
    fn try_from(bytes: Bytes) -> Result<Self, String> {
        Self::new(bytes.into_vec())
    }
}

impl From<Name> for Bytes {
    fn from(name: Name) -> Self {
        Self::of(name.0)
    }
}

impl TryFrom<Bytes> for LinkTarget {
    type Error = String;
    fn try_from(bytes: Bytes) -> Result<Self, String> {
        Self::new(bytes.into_vec())
    }
}

impl From<LinkTarget> for Bytes {
    fn from(target: LinkTarget) -> Self {
        Self::of(target.0)
    }
}

impl Bytes {
    fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(e) => Self::Raw(e.into_bytes()),
        }
    }

    fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Raw(bytes) => bytes,
        }
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Sha256Hex> for String {
    fn from(hash: Sha256Hex) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for Sha256Hex {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, &'static str> {
        let wrong = "a SHA-256 is 64 hexadecimal digits";
        // Checked first, because from_str_radix accepts a sign.
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong);
        }
        let mut hash = [0; 32];
        for (i, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| wrong)?;
        }
        Ok(Self(hash))
    }
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(connections: &u32) -> bool {
    *connections == 1
}

/// Longest component of a path on Linux, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Longest target of a symbolic link on Linux, in bytes: a path without its final NUL.
const TARGET_BYTES_MAX: usize = 4095;

const PARTIAL_SUFFIX: &[u8] = b".spanwire-partial";

/// Bytes of a long name that are kept in the name of its partial file.
const PARTIAL_STEM_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Message, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn name__is_one_component_only() {
        let name = |name: &str| {
            parse(&format!(r#"{{"type":"entry","index":0,"kind":"dir","name":{name}}}"#))
        };
        assert!(name(r#""fine""#).is_ok());
        assert!(name(r#""...""#).is_ok());
        let long = format!("{:?}", "x".repeat(256));
        let [slash, dots, nul] = [r"[46,46,47,120]", r"[46,46]", r"[97,0]"];
        for bad in [
            r#""""#,
            r#"".""#,
            r#""..""#,
            r#""/etc""#,
            r#""../x""#,
            r#""a/b""#,
            r#""a\u0000b""#,
            r#"".x.spanwire-partial""#,
            &long,
            slash,
            dots,
            nul,
            "[]",
            "null",
            "7",
        ] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn name__every_byte_string_survives_json() {
        for bytes in [b"plain".to_vec(), "\u{1f980} ü".into(), b"\xff\xfe".to_vec()] {
            let entry =
                Entry { index: 7, kind: EntryKind::Dir { name: Name::new(bytes).unwrap() } };
            let json = serde_json::to_string(&Message::Entry(entry.clone())).unwrap();
            assert_eq!(parse(&json).unwrap(), Message::Entry(entry), "{json}");
        }
    }

    #[test]
    fn partial__is_hidden_short_enough_and_different_for_different_names() {
        let of = |name: &str| Name::new(name.into()).unwrap().partial();
        assert_eq!(of("a.iso"), b".a.iso.spanwire-partial");
        let long = "x".repeat(254);
        let [a, b] = ["a", "b"].map(|end| of(&format!("{long}{end}")));
        assert_ne!(a, b);
        assert!(a.len() <= 255 && a.starts_with(b".x"));
        assert!(Name::new(a).is_err(), "no sender may write to it");
        assert_eq!(of(&"y".repeat(237)).len(), 255);
    }

    #[test]
    fn link_target__has_bounds() {
        assert!(LinkTarget::new(b"../../etc/passwd".to_vec()).is_ok());
        for bad in [vec![], vec![b'x'; 4096], b"a\0".to_vec()] {
            assert!(LinkTarget::new(bad).is_err());
        }
    }

    #[test]
    fn name__is_shown_without_control_characters() {
        assert_eq!(Name::new(b"a\x1b[2Jb\n".to_vec()).unwrap().to_string(), "a\\u{1b}[2Jb\\n");
    }

    #[test]
    fn sha256_hex__accepts_64_digits_only() {
        let hash = Sha256Hex(std::array::from_fn(|i| u8::try_from(i * 8).unwrap()));
        assert_eq!(Sha256Hex::try_from(hash.to_string()), Ok(hash));
        for bad in ["", "ab", &"g".repeat(64), &"+1".repeat(32), &"é".repeat(32)] {
            assert!(Sha256Hex::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
