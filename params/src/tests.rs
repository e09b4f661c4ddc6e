#![expect(unreachable_pub, reason = "items made by the macros are public")]

use super::*;

mod spray {
    crate::params! {
        /// Whole numbers.
        struct Params of u64;
        /// Number of paths.
        ///
        /// As many as there are spines.
        paths = 8 in 1..=64;
        /// Selection of the next path.
        order = 0 of "random" | "turn";
    }
}

mod single {
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
        /// Packets are paced.
        paced = true;
    }
}

crate::choices! {
    /// Whole numbers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Spread of u64, "spread";
    /// One path.
    Single(single::Params) = "single";
    /// All.
    Spray(spray::Params) = "spray";
    "in-turn" = Spread::Spray(spray::Params { order: 1, ..Default::default() });
}

crate::choices! {
    /// Numbers.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Limit of f64, "limit";
    /// A window.
    Window(window::Params) = "window";
}

fn error(text: &str) -> String {
    Spread::parse(text).unwrap_err().to_string()
}

#[test]
fn text__is_the_word_of_a_value_or_the_number() {
    let [paths, order] = spray::Params::FIELDS else { panic!("two parameters") };
    assert_eq!(
        [paths.text(1.into()), order.text(0.into()), order.text(1.into()), order.text(2.into())],
        ["1", "random", "turn", "2"]
    );
    for value in [0.1, 1e-9, 123_456_789.5, -0.0, f64::MIN_POSITIVE] {
        let field = &window::Params::FIELDS[0];
        let text = field.text(value.into());
        assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits(), "{text}");
    }
}

#[test]
fn parse__takes_words_and_numbers_in_range() {
    let [paths, order] = spray::Params::FIELDS else { panic!("two parameters") };
    assert_eq!(
        (paths.parse(" 64 "), order.parse("turn"), order.parse("0")),
        (Ok(64.into()), Ok(1.into()), Ok(0.into()))
    );
    let gain = &window::Params::FIELDS[0];
    assert_eq!(gain.parse("2.5e-1"), Ok(0.25.into()));
    for bad in ["NaN", "inf", "-inf", "1e400", "1.01", "-0.01", "on", "true", "x", ""] {
        assert!(gain.parse(bad).is_err(), "{bad}");
    }
    for bad in ["0", "65", "-1", "1.0", "on", "99999999999999999999", ""] {
        assert!(paths.parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn parse__a_flag_is_true_or_false_and_prints_as_that() {
    let paced = &window::Params::FIELDS[2];
    assert_eq!((paced.kind, paced.default, paced.range()), (Kind::Bool, true.into(), None));
    for (text, value) in [
        ("true", true),
        ("on", true),
        ("1", true),
        (" false ", false),
        ("off", false),
        ("0", false),
    ] {
        assert_eq!(paced.parse(text), Ok(value.into()), "{text}");
        assert_eq!(paced.text(value.into()), value.to_string());
    }
    for bad in ["0.5", "2", "1.0", "-1", "True", "yes", "NaN", ""] {
        let error = paced.parse(bad).unwrap_err().to_string();
        assert_eq!(error, format!("paced is true or false, not {bad:?}"));
    }
}

#[test]
fn check__reports_the_range() {
    let gain = &window::Params::FIELDS[0];
    assert_eq!((gain.check(0.0.into()), gain.check(1.0.into())), (Ok(()), Ok(())));
    let error = gain.check(f64::NAN.into()).unwrap_err().to_string();
    assert_eq!(error, "gain is NaN, but must be between 0 and 1");
}

#[test]
fn differences__are_exact_to_the_bit() {
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
    let of = |spread: &Spread| table(spread.fields(), &spread.values());
    let head = "| parameter | default | range | |\n|---|---|---|---|\n";
    assert_eq!(of(&Spread::named("single").unwrap()), head);
    let rows = "| `paths` | 8 | 1 to 64 | Number of paths. As many as there are spines. |\n\
        | `order` | turn | random, turn | Selection of the next path. |\n";
    assert_eq!(of(&Spread::named("in-turn").unwrap()), format!("{head}{rows}"));
    let window = window::Params::default();
    let text = table(window::Params::FIELDS, &window.values());
    assert!(text.contains("| `most_pkts` | 2e6 | 1 to 1e9 | The most packets. |"), "{text}");
    assert!(text.contains("| `gain` | 0.5 | 0 to 1 |"), "{text}");
    assert!(text.contains("| `paced` | true | true, false | Packets are paced. |"), "{text}");
}

#[test]
fn choices__parse_what_they_display() {
    assert_eq!(Spread::known(), ["single", "spray", "in-turn"]);
    assert_eq!(Spread::named("in-turn").unwrap().name(), "spray");
    for (text, shown) in [
        ("single", "single"),
        ("in-turn", "spray,order=turn"),
        ("spray, paths = 9 ,order=1", "spray,paths=9,order=turn"),
        ("spray,paths=9,paths=8", "spray,paths=8"),
    ] {
        let spread = Spread::parse(text).unwrap();
        assert_eq!(spread.to_string(), shown);
        assert_eq!((Spread::parse(shown), spread.validate()), (Ok(spread), Ok(())));
    }
    let limit = Limit::parse("window,gain=0.1").unwrap();
    assert_eq!((limit.to_string(), limit.validate()), ("window,gain=0.1".to_owned(), Ok(())));
    for text in ["window,paced=0", "window,paced=off", "window,paced=false"] {
        let limit = Limit::parse(text).unwrap();
        assert_eq!(limit, Limit::Window(window::Params { paced: false, ..Default::default() }));
        assert_eq!(limit.to_string(), "window,paced=false");
    }
    // Set, to the default: an algorithm that scales its defaults keeps it.
    let Limit::Window(set) = Limit::parse("window,paced=1").unwrap();
    assert!(
        set.is_set("paced") && !set.is_set("gain") && !window::Params::default().is_set("paced")
    );
    assert_eq!(set, window::Params::default(), "it has the same values");
    assert_eq!(Limit::Window(set).to_string(), "window,paced=true");
    assert_eq!(Limit::parse("window,paced=true").map(|l| l.settings().len()), Ok(1));
    let outside = Limit::Window(window::Params { gain: 2.0, ..Default::default() });
    assert!(outside.validate().is_err());
}

#[test]
fn choices__report_errors_with_the_allowed_values() {
    for (text, expected) in [
        ("drill,x", "no spread is called drill; there are single, spray, in-turn"),
        ("", "no spread is called ; there are single, spray, in-turn"),
        ("spray,path=2", "it has no parameter path; it has paths, order"),
        ("single,x=1", "it has no parameter x, nor any other"),
        ("spray,paths", "\"paths\" is not KEY=VALUE"),
        ("spray,", "\"\" is not KEY=VALUE"),
        ("spray,paths=many", "paths is a whole number, not \"many\""),
        ("spray,paths=0", "paths is 0, but must be between 1 and 64"),
        ("spray,order=back", "order is one of random, turn, not \"back\""),
    ] {
        assert_eq!(error(text), expected);
    }
    let error = Limit::parse("window,gain=x").unwrap_err().to_string();
    assert_eq!(error, "gain is a number, not \"x\"");
}

#[test]
fn set__changes_nothing_when_it_fails() {
    let mut spread = Spread::named("in-turn").unwrap();
    for (name, text) in [("paths", "0"), ("paths", "x"), ("order", "2"), ("speed", "1")] {
        assert!(spread.set(name, text).is_err(), "{name}={text}");
        assert_eq!(Ok(spread), Spread::named("in-turn"));
    }
}
