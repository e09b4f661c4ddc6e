#![expect(unreachable_pub, reason = "what the macros make is public")]

use super::*;

mod spray {
    crate::params! {
        /// Whole numbers.
        struct Params of u64;
        /// So many paths.
        ///
        /// As many as there are spines.
        paths = 8 in 1..=64;
        /// How the next is found.
        order = 0 in 0..=1 as "random" | "turn";
    }
}

mod still {
    crate::params! {
        /// None.
        struct Params of u64;
    }
}

mod window {
    crate::params! {
        /// Numbers.
        struct Params of f64;
        /// Gain.
        gain = 0.5 in 0.0..=1.0;
        /// The most packets.
        most_pkts = 2e6 in 1.0..=1e9;
    }
}

crate::choices! {
    /// Whole numbers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Way of u64, "way";
    /// One path.
    Still(still::Params) = "still";
    /// All.
    Spray(spray::Params) = "spray";
    "in-turn" = Way::Spray(spray::Params { order: 1, ..Default::default() });
}

crate::choices! {
    /// Numbers.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Limit of f64, "limit";
    /// A window.
    Window(window::Params) = "window";
}

fn said(text: &str) -> String {
    Way::parse(text).unwrap_err().to_string()
}

#[test]
fn text__is_the_word_of_a_value_or_the_number() {
    let [paths, order] = spray::Params::FIELDS else { panic!("two parameters") };
    assert_eq!(
        [paths.text(1), order.text(0), order.text(1), order.text(2)],
        ["1", "random", "turn", "2"]
    );
    for value in [0.1, 1e-9, 123_456_789.5, -0.0, f64::MIN_POSITIVE] {
        let field = &window::Params::FIELDS[0];
        let text = field.text(value);
        assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{text}");
    }
}

#[test]
fn parse__takes_words_and_numbers_in_range() {
    let [paths, order] = spray::Params::FIELDS else { panic!("two parameters") };
    assert_eq!(
        (paths.parse(" 64 "), order.parse("turn"), order.parse("0")),
        (Ok(64), Ok(1), Ok(0))
    );
    let gain = &window::Params::FIELDS[0];
    for (text, value) in
        [("on", 1.0), ("true", 1.0), ("off", 0.0), ("false", 0.0), ("2.5e-1", 0.25)]
    {
        assert_eq!(gain.parse(text), Ok(value), "{text}");
    }
    for bad in ["NaN", "inf", "-inf", "1e400", "1.01", "-0.01", "x", ""] {
        assert!(gain.parse(bad).is_err(), "{bad}");
    }
    for bad in ["0", "65", "-1", "1.0", "on", "99999999999999999999", ""] {
        assert!(paths.parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn check__says_the_range() {
    let gain = &window::Params::FIELDS[0];
    assert_eq!((gain.check(0.0), gain.check(1.0)), (Ok(()), Ok(())));
    let error = gain.check(f64::NAN).unwrap_err().to_string();
    assert_eq!(error, "gain is NaN, but must be between 0 and 1");
}

#[test]
fn differences__are_to_the_bit() {
    let plain = Limit::named("window").unwrap();
    let mut other = plain;
    assert_eq!(other.differences(&plain), []);
    other.set("gain", "0").unwrap();
    let zero = other;
    other.set("gain", "-0").unwrap();
    assert_eq!(other.differences(&zero), [("gain", "-0".to_owned())]);
    assert_eq!(other.defaults(), plain);
}

#[test]
fn split__is_a_name_and_settings() {
    let (name, settings) = split(" a , b = c,d=,e");
    let settings: Vec<_> = settings.collect();
    let e = ParamError::NotASetting { text: "e".to_owned() };
    assert_eq!((name, settings), ("a", vec![Ok(("b", "c")), Ok(("d", "")), Err(e)]));
    assert_eq!((split("").0, split("").1.count()), ("", 0));
}

#[test]
fn table__has_a_row_for_each_parameter() {
    let of = |way: &Way| table(way.fields(), &way.values());
    let head = "| parameter | default | range | |\n|---|---|---|---|\n";
    assert_eq!(of(&Way::named("still").unwrap()), head);
    let rows = "| `paths` | 8 | 1 to 64 | So many paths. As many as there are spines. |\n\
        | `order` | turn | random, turn | How the next is found. |\n";
    assert_eq!(of(&Way::named("in-turn").unwrap()), format!("{head}{rows}"));
    let window = window::Params::default();
    let text = table(window::Params::FIELDS, &window.values());
    assert!(text.contains("| `most_pkts` | 2e6 | 1 to 1e9 | The most packets. |"), "{text}");
    assert!(text.contains("| `gain` | 0.5 | 0 to 1 |"), "{text}");
}

#[test]
fn choices__parse_what_they_display() {
    assert_eq!(Way::known(), ["still", "spray", "in-turn"]);
    assert_eq!(Way::named("in-turn").unwrap().name(), "spray");
    for (text, shown) in [
        ("still", "still"),
        ("in-turn", "spray,order=turn"),
        ("spray, paths = 9 ,order=1", "spray,paths=9,order=turn"),
        ("spray,paths=9,paths=8", "spray"),
    ] {
        let way = Way::parse(text).unwrap();
        assert_eq!(way.to_string(), shown);
        assert_eq!((Way::parse(shown), way.validate()), (Ok(way), Ok(())));
    }
    let limit = Limit::parse("window,gain=0.1").unwrap();
    assert_eq!((limit.to_string(), limit.validate()), ("window,gain=0.1".to_owned(), Ok(())));
    let outside = Limit::Window(window::Params { gain: 2.0, ..Default::default() });
    assert!(outside.validate().is_err());
}

#[test]
fn choices__say_what_is_wrong_and_what_is_allowed() {
    for (text, expected) in [
        ("drill,x", "no way is called drill; there are still, spray, in-turn"),
        ("", "no way is called ; there are still, spray, in-turn"),
        ("spray,path=2", "it has no parameter path; it has paths, order"),
        ("still,x=1", "it has no parameter x, nor any other"),
        ("spray,paths", "\"paths\" is no KEY=VALUE"),
        ("spray,", "\"\" is no KEY=VALUE"),
        ("spray,paths=many", "paths is a whole number, not \"many\""),
        ("spray,paths=0", "paths is 0, but must be between 1 and 64"),
        ("spray,order=back", "order is one of random, turn, not \"back\""),
    ] {
        assert_eq!(said(text), expected);
    }
    let error = Limit::parse("window,gain=x").unwrap_err().to_string();
    assert_eq!(error, "gain is a number (a flag is 0 or 1), not \"x\"");
}

#[test]
fn set__changes_nothing_when_it_fails() {
    let mut way = Way::named("in-turn").unwrap();
    for (name, text) in [("paths", "0"), ("paths", "x"), ("order", "2"), ("speed", "1")] {
        assert!(way.set(name, text).is_err(), "{name}={text}");
        assert_eq!(Ok(way), Way::named("in-turn"));
    }
}
