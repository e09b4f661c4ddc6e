//! Errors of TOML files as text.

use spanwire_host::text::{PRINTABLE_CHARS_MAX, printable, printable_lines};

/// The message of the parser, which shows the line and marks the position. What it quotes of the
/// file is printable.
pub(crate) fn toml_error(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let text = text.trim_end();
    // The message is at the end. It is one line, but may quote a key with line ends.
    let (line, message) = text.split_at(text.rfind(error.message().trim_end()).unwrap_or(0));
    printable_lines(line, PRINTABLE_CHARS_MAX) + &printable(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_error__quotes_a_file_without_its_control_characters() {
        for (text, quoted) in [
            ("a = 1\n\"x\x1b[2J\" = = 2\n", "\n2 | \"x\\u{1b}[2J\" = = 2\n"),
            ("a = 1\r\x1b[31mb\n", "\\r\\u{1b}[31mb"),
            ("a = 1\n[x\x1b]\n", "x\\u{1b}"),
        ] {
            let error = toml_error(&toml::from_str::<toml::Table>(text).expect_err(text));
            assert!(error.contains(quoted), "{quoted:?} in {error:?}");
            assert!(error.starts_with("TOML parse error at line"), "{error:?}");
            assert!(!error.chars().any(|c| c.is_control() && c != '\n'), "{error:?}");
        }
        #[derive(serde::Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        struct Nothing {}
        let text = "\"x\\u001b[2J\\nerror: forged\" = 1\n";
        let error = toml_error(&toml::from_str::<Nothing>(text).expect_err(text));
        assert!(error.contains("unknown field `x\\u{1b}[2J\\nerror: forged`"), "{error:?}");
        assert!(!error.contains("\nerror: forged"), "{error:?}");
    }
}
