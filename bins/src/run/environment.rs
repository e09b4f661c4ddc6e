//! The environment of a program that is run with the library.

use spanwire_host::program::{ProgramSettings, VARIABLES};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Variables with their values, or without one if they are to be removed.
pub(super) struct Environment(Vec<(&'static str, Option<OsString>)>);

impl Environment {
    /// The variables of `settings` and those of the dynamic loader that load `library`, an absolute
    /// path. `old` is the value of a variable in the present environment.
    pub(super) fn new(
        settings: &ProgramSettings,
        library: &Path,
        old: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let set = settings.to_env();
        let value = |name: &str| set.iter().find(|(known, _)| *known == name);
        let ours = VARIABLES.map(|name| (name, value(name).map(|(_, value)| value.into())));
        let ours = ours.into_iter().filter(|(name, value)| value.is_some() || old(name).is_some());
        let dir = library.parent().unwrap_or(library);
        let loader = [("LD_PRELOAD", library), ("LD_LIBRARY_PATH", dir)];
        let loader = loader.map(|(name, first)| (name, Some(in_front(first, old(name)))));
        Self(ours.chain(loader).collect())
    }

    /// Gives `command` these variables.
    pub(super) fn apply(&self, command: &mut Command) {
        for (name, value) in &self.0 {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Commands that have a POSIX shell set and remove the variables.
    pub(super) fn to_shell(&self) -> Vec<u8> {
        let line = |(name, value): &(&str, Option<OsString>)| match value {
            Some(value) => [b"export ", name.as_bytes(), b"=", &quoted(value), b"\n"].concat(),
            None => format!("unset {name}\n").into_bytes(),
        };
        self.0.iter().flat_map(line).collect()
    }

    /// The variables for people, a line each.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.0 {
            let value = value.as_deref().unwrap_or_default().display();
            // Writing to a String cannot fail.
            let _ = write!(text, "{}  {name}={value}", if text.is_empty() { "" } else { "\n" });
        }
        text
    }
}

/// The list `old` with `first` in front, unless it is there already.
fn in_front(first: &Path, old: Option<OsString>) -> OsString {
    let first = first.as_os_str();
    let old = old.unwrap_or_default();
    let rest = old.as_bytes().strip_prefix(first.as_bytes());
    match rest.map(<[u8]>::first) {
        Some(None | Some(b':')) => old,
        _ if old.is_empty() => first.to_owned(),
        _ => [first, OsStr::new(":"), &old].into_iter().collect(),
    }
}

/// `value` in single quotes, in which a shell replaces nothing.
fn quoted(value: &OsStr) -> Vec<u8> {
    let parts: Vec<&[u8]> = value.as_bytes().split(|byte| *byte == b'\'').collect();
    [b"'", &*parts.join(&b"'\\''"[..]), b"'"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(old: &[(&str, &str)]) -> String {
        let dev = Some("it's $HOME".to_owned());
        let settings = ProgramSettings { dev, ..ProgramSettings::default() };
        let old = |name: &str| old.iter().find(|(known, _)| *known == name).map(|(_, v)| v.into());
        let environment = Environment::new(&settings, Path::new("/opt/lib/x.so.1"), old);
        String::from_utf8(environment.to_shell()).expect("UTF-8")
    }

    #[test]
    fn to_shell__is_quoted() {
        let expected = "export SPANWIRE_DEV='it'\\''s $HOME'\n\
                        export LD_PRELOAD='/opt/lib/x.so.1'\nexport LD_LIBRARY_PATH='/opt/lib'\n";
        assert_eq!(shell(&[]), expected);
    }

    #[test]
    fn new__what_is_set_is_kept_behind_or_removed() {
        let old = [("SPANWIRE_MODE", "rc"), ("LD_PRELOAD", "/a.so /b.so"), ("LD_LIBRARY_PATH", "")];
        let text = shell(&old);
        assert!(text.contains("unset SPANWIRE_MODE\n"), "{text}");
        assert!(text.contains("LD_PRELOAD='/opt/lib/x.so.1:/a.so /b.so'\n"), "{text}");
        assert!(text.contains("LD_LIBRARY_PATH='/opt/lib'\n"), "{text}");
    }

    #[test]
    fn in_front__is_not_repeated() {
        let front = |old: &str| in_front(Path::new("/lib"), Some(old.into()));
        assert_eq!((front("/lib"), front("/lib:/b")), ("/lib".into(), "/lib:/b".into()));
        assert_eq!(
            (front("/lib64"), front("/b:/lib")),
            ("/lib:/lib64".into(), "/lib:/b:/lib".into())
        );
    }
}
