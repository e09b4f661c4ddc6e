//! Whole files in memory, each up to a limit.
//!
//! A path that a user, a script or another file names may lead to anything: a file of many
//! gigabytes, a device or a pipe without an end. The limit holds for all of them.

use crate::text::bytes;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The content of the file at `path`, at most `max` bytes. `what` names such files in the plural,
/// for the error: "configurations".
///
/// # Errors
/// The file cannot be read, or it is longer ([`ErrorKind::FileTooLarge`]). The message does not
/// name the path.
pub fn read(path: &Path, what: &str, max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let too_long = |found: String| {
        let why = format!("it has {found}; {what} have at most {}", bytes(max));
        io::Error::new(ErrorKind::FileTooLarge, why)
    };
    let len = file.metadata()?.len();
    if len > max {
        return Err(too_long(bytes(len)));
    }
    // The size of a device, a pipe or a file of /proc is 0, and a file may grow.
    let mut content = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|len| len <= max) {
        Ok(content)
    } else {
        Err(too_long(format!("more than {}", bytes(max))))
    }
}

/// The same for text in UTF-8.
///
/// # Errors
/// See [`read`]; or the content is not UTF-8 ([`ErrorKind::InvalidData`]).
pub fn read_text(path: &Path, what: &str, max: u64) -> io::Result<String> {
    String::from_utf8(read(path, what, max)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("it is no text: byte {at} is not UTF-8"))
    })
}

/// The text of a file that the kernel makes, in `/proc` or `/sys`.
///
/// # Errors
/// See [`read_text`].
pub fn read_kernel(path: impl AsRef<Path>) -> io::Result<String> {
    read_text(path.as_ref(), "files of the kernel", KERNEL_BYTES_MAX)
}

/// The most of a configuration that people write.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The most of a file of the kernel: `/proc/cpuinfo` has some kilobytes for each of many cores.
const KERNEL_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::path::PathBuf;

    /// A path of its own in the temporary directory, which is removed when it is dropped.
    struct Temp(PathBuf);

    impl Temp {
        fn new(name: &str) -> Self {
            let name = format!("spanwire-file-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Temp {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn read__takes_a_file_of_the_limit_and_none_longer() {
        let file = Temp::new("limit");
        fs::write(&file.0, b"12345").expect("writable");
        assert_eq!(read(&file.0, "models", 5).expect("within the limit"), b"12345");
        let error = read(&file.0, "models", 4).expect_err("above the limit");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has 5 B; models have at most 4 B");
        let error = read(Path::new("/no/such"), "models", 5).expect_err("no file");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    /// Without a limit the first would need 6 GiB of memory, and the second would not end.
    #[test]
    fn read__is_bounded_for_sparse_files_devices_and_pipes() {
        let sparse = Temp::new("sparse");
        File::create(&sparse.0).and_then(|file| file.set_len(6 << 30)).expect("sparse");
        let error = read(&sparse.0, "models", 1 << 20).expect_err("above the limit");
        assert_eq!(error.to_string(), "it has 6 GiB; models have at most 1 MiB");
        let error = read(Path::new("/dev/zero"), "models", 1 << 20).expect_err("it has no end");
        assert_eq!(error.to_string(), "it has more than 1 MiB; models have at most 1 MiB");
        let pipe = Temp::new("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe.0,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .expect("a FIFO");
        std::thread::scope(|threads| {
            // Ends with an error when the reader closes its end.
            threads.spawn(|| {
                let mut pipe = fs::OpenOptions::new().write(true).open(&pipe.0).expect("ours");
                while pipe.write_all(&[b'x'; 4096]).is_ok() {}
            });
            let error = read(&pipe.0, "models", 100_000).expect_err("it has no end");
            assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        });
    }

    #[test]
    fn read_text__names_the_first_byte_that_is_no_text() {
        let file = Temp::new("text");
        fs::write(&file.0, b"abc\xff").expect("writable");
        let error = read_text(&file.0, "models", 10).expect_err("not UTF-8");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(error.to_string(), "it is no text: byte 3 is not UTF-8");
        assert!(read_kernel("/proc/self/status").expect("Linux").starts_with("Name:"));
    }
}
