use super::*;
use crate::network::Scratch;
use crate::testing::{random, reals};

fn about() -> About {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    About {
        format: FORMAT,
        scheme: "test".to_owned(),
        state: words("Q T"),
        actions: words("less more"),
        seed: 7,
        command: "none".to_owned(),
    }
}

fn model() -> Model {
    let networks = [("policy", &[2, 3, 2][..]), ("decision", &[4, 2])];
    Model::new(about(), networks.map(|(name, widths)| (name.to_owned(), random(widths, 1))))
}

#[test]
fn read__what_was_written() {
    let model = model();
    let bytes = model.write();
    assert_eq!(bytes, model.write());
    let read = Model::read(&bytes).expect("it was just written");
    assert_eq!(read, model);
    let (mut one, mut other) = (Scratch::default(), Scratch::default());
    let input = reals(2, 3);
    let of = |model: &Model| model.network("policy", &[2, 3, 2]).cloned().unwrap();
    assert_eq!(of(&read).forward(&input, &mut one), of(&model).forward(&input, &mut other));
}

#[test]
fn write__weights_are_by_output_as_in_other_libraries() {
    let model = model();
    let bytes = model.write();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let weight = file.tensor("policy.0.weight").unwrap();
    assert_eq!((weight.dtype(), weight.shape()), (Dtype::F32, &[3, 2][..]));
    let second = f32::from_le_bytes(weight.data()[4..8].try_into().unwrap());
    let layer = &model.networks["policy"].layers[0];
    assert_eq!(second.to_bits(), layer.weights[layer.outputs].to_bits(), "input 1, output 0");
}

#[test]
fn read__errors_say_what_is_wrong_and_what_would_be_right() {
    let error = |bytes: &[u8]| Model::read(bytes).unwrap_err().to_string();
    let with = |change: fn(&mut Model)| {
        let mut model = model();
        change(&mut model);
        model.write()
    };
    let long = vec![0; MODEL_MAX_BYTES + 1];
    assert_eq!(error(&long), "has 1048577 bytes; a model has at most 1048576");
    for bytes in [&b""[..], b"PK\x03\x04 something else", &[0; 8], &[255; 64]] {
        let text = error(bytes);
        assert!(text.starts_with("is not in the format safetensors: "), "{text}");
    }
    let cut = model().write();
    assert!(error(&cut[..cut.len() - 1]).starts_with("is not in the format safetensors"));
    let none = serialize([] as [(&str, TensorView<'_>); 0], None).unwrap();
    assert!(error(&none).contains("key \"spanwire\": it is missing"));
    let text = error(&with(|model| model.about.format = 2));
    assert_eq!(text, "has version 2 of the format; this is version 1");
    let text = error(&with(|model| {
        // Of input 1 to output 1: the second of three of its row.
        model.networks.get_mut("policy").unwrap().layers[1].weights[3] = f32::NAN;
    }));
    assert_eq!(text, "has a value that is not finite, tensor \"policy.1.weight\" at 4");
    let text = error(&with(|model| {
        let other = random(&[4, 2], 1).layers;
        model.networks.get_mut("policy").unwrap().layers.extend(other);
    }));
    assert_eq!(text, "has F32 [2, 4] as tensor \"policy.2.weight\"; wanted is F32 (outputs, 2)");
}

#[test]
fn check__scheme_state_and_actions() {
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let check = |scheme: &str, state: &str, actions: &str| {
        let checked = model().check(scheme, &words(state), &words(actions));
        checked.map_or_else(|e| e.to_string(), |()| "right".to_owned())
    };
    assert_eq!(check("test", "Q T", "less more"), "right");
    for (found, want) in [
        (check("acc", "Q T", "less more"), "is of the scheme \"test\"; wanted is \"acc\""),
        (check("test", "Q", "less more"), "reads the state Q T; wanted is Q"),
        (check("test", "Q T", "less"), "has \"more\" as action 1; wanted is none"),
        (check("test", "Q T", "less most"), "has \"more\" as action 1; wanted is \"most\""),
    ] {
        assert_eq!(found, want);
    }
}

/// The words of a file in errors, as an attacker's file may have them.
#[test]
fn errors__have_no_control_characters_of_the_file() {
    let evil = "x\x1b[2J\r\nforged";
    let with = |change: &dyn Fn(&mut Model)| {
        let mut model = model();
        change(&mut model);
        model
    };
    let words = || vec![evil.to_owned()];
    let header = |json: String| [&u64_from(json.len()).to_le_bytes()[..], json.as_bytes()].concat();
    let dtype = r#"{"a":{"dtype":"x\u001b[2J\r\n","shape":[],"data_offsets":[0,0]}}"#;
    let described = |text: &str| {
        let metadata = [(KEY.to_owned(), text.to_owned())].into_iter().collect();
        serialize([] as [(&str, TensorView<'_>); 0], Some(metadata)).unwrap()
    };
    let unknown = r#"{"format":1,"scheme":"\u001b[2J","state":"\u001b[2J\r\n"}"#;
    for (at, error) in [
        ("dtype", Model::read(&header(dtype.to_owned())).unwrap_err()),
        ("JSON", Model::read(&header(format!("{{\"{evil}\":1}}"))).unwrap_err()),
        ("about", Model::read(&described(unknown)).unwrap_err()),
        ("no JSON", Model::read(&described(evil)).unwrap_err()),
        (
            "scheme",
            with(&|m| m.about.scheme = evil.to_owned()).check("test", &[], &[]).unwrap_err(),
        ),
        ("state", with(&|m| m.about.state = words()).check("test", &[], &[]).unwrap_err()),
        (
            "actions",
            with(&|m| m.about.actions = words()).check("test", &about().state, &[]).unwrap_err(),
        ),
        ("tensor", {
            let model = with(&|m| {
                let mut network = random(&[2, 2], 1);
                network.layers[0].bias[0] = f32::NAN;
                m.networks.insert(evil.to_owned(), network);
            });
            Model::read(&model.write()).unwrap_err()
        }),
    ] {
        let text = error.to_string();
        assert!(!text.chars().any(char::is_control), "{at}: {text:?}");
    }
}

#[test]
fn network__must_be_there_with_its_widths() {
    let model = model();
    let error = |name: &str, widths: &[usize]| model.network(name, widths).unwrap_err().to_string();
    assert_eq!(error("value", &[2, 3, 2]), "has no network \"value\"");
    let text = error("policy", &[2, 4, 2]);
    assert_eq!(text, "has a network \"policy\" of widths [2, 3, 2]; wanted are [2, 4, 2]");
}

#[test]
fn read__never_panics() {
    let bytes = model().write();
    let mut rng = spanwire_base::Rng::new(1);
    for _ in 0..20_000 {
        let mut bytes = bytes.clone();
        for _ in 0..=rng.below(4) {
            let at = usize::try_from(rng.below(600)).unwrap().min(bytes.len() - 1);
            bytes[at] = u8::try_from(rng.below(256)).unwrap();
        }
        _ = Model::read(&bytes);
    }
}
