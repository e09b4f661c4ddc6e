use super::*;

/// Networks whose outputs are their last biases.
fn constant(decision: [f32; 2], best: usize) -> EcnModel {
    let with = |widths: &[usize], outputs: &[f32]| {
        let mut network = Network::zeros(widths);
        let n = network.parameters().count();
        let last = network.parameters_mut().skip(n - outputs.len());
        last.zip(outputs).for_each(|(own, new)| *own = *new);
        network
    };
    let mut values = [0.0; Action::COUNT];
    values[best] = 1.0;
    let decision = with(EcnModel::DECISION, &decision);
    EcnModel::of_networks("test", decision, with(EcnModel::POLICY, &values))
}

fn chooser(model: &EcnModel) -> Chooser {
    Chooser::new(model, None)
}

#[test]
fn choose__the_policy_network_runs_only_if_the_decision_network_triggers() {
    let state = History::default();
    let keep = chooser(&constant([1.0, 0.0], 7)).choose(&state, &state);
    assert_eq!(keep, (Choice::Keep, Cost { decision: 1024, policy: 0 }));
    let (choice, cost) = chooser(&constant([0.0, 1.0], 7)).choose(&state, &state);
    assert_eq!((choice, cost.policy), (Choice::Take(Action::new(7).unwrap()), 2 * 16_128));
}

#[test]
fn choose__an_output_that_is_not_finite_changes_nothing() {
    let mut big = Network::zeros(EcnModel::DECISION);
    big.parameters_mut().for_each(|own| *own = f32::MAX);
    let model = EcnModel::of_networks("test", big, Network::zeros(EcnModel::POLICY));
    let state = History([1.0; STATE]);
    assert_eq!(chooser(&model).choose(&state, &state).0, Choice::NotFinite);
}

#[test]
fn choose__flops_are_those_of_the_vectors() {
    let model = EcnModel::default().networks();
    let (decision, policy) = (model.decision.multiply_adds(), model.policy.multiply_adds());
    assert_eq!((decision, policy), (512, 16_128));
    // LAECN over ACC, which runs the policy network in each interval of 15 round trips: at equal
    // intervals, and at 5 round trips.
    let share = |per_interval: u64, intervals: u64| {
        let triggered = policy * per_interval / 1000;
        (decision + triggered) * intervals * 1000 / policy
    };
    assert!(share(658, 1) <= 690 && share(660, 1) > 690);
    assert!(share(198, 3) <= 690 && share(200, 3) > 690);
}

#[test]
fn choose__explores_as_often_as_it_is_told() {
    let model = constant([1.0, 0.0], 7);
    let mut chooser = Chooser::new(&model, Some((250_000, 3)));
    let state = History::default();
    let mut counts = [0; 3];
    for _ in 0..40_000 {
        match chooser.choose(&state, &state).0 {
            Choice::Keep => counts[0] += 1,
            Choice::Take(action) if action.place() == 7 => counts[1] += 1,
            _ => counts[2] += 1,
        }
    }
    // An eighth triggers, and a quarter of these takes another action than the best.
    assert!((34_500..35_500).contains(&counts[0]), "{counts:?}");
    assert!((1_100..1_350).contains(&counts[2]), "{counts:?}");
}

#[test]
fn of_file__errors_name_what_is_wrong() {
    let error = |bytes: &[u8]| EcnModel::of_file("x", bytes).unwrap_err().to_string();
    assert!(error(b"nothing").contains("safetensors"));
    let file = constant([0.0, 1.0], 7).to_file(1, "test").unwrap();
    assert_eq!(EcnModel::of_file("test", &file), Ok(constant([0.0, 1.0], 7)));
    let change = |change: fn(&mut Model)| {
        let mut model = Model::read(&file).unwrap();
        change(&mut model);
        error(&model.write())
    };
    let scheme = change(|model| model.about.scheme = "acc".to_owned());
    assert_eq!(scheme, "is of the scheme \"acc\"; wanted is \"laecn\"");
    let actions = change(|model| model.about.actions[3] = "1 2 3".to_owned());
    assert_eq!(actions, "has \"1 2 3\" as action 3; wanted is \"20 80 50000\"");
    assert!(change(|model| model.about.state.truncate(3)).starts_with("reads the state"));
    let shape = change(|model| {
        let network = Network::zeros(&[15, 45]);
        let decision = Network::zeros(EcnModel::DECISION);
        let named = [(POLICY, network), (DECISION, decision)];
        let named = named.map(|(name, network)| (name.to_owned(), network));
        *model = Model::new(model.about.clone(), named);
    });
    assert!(shape.contains("widths [15, 45]; wanted are [15, 64"), "{shape}");
}

#[test]
fn networks__the_shipped_model_is_right_and_short() {
    assert!(SHIPPED.len() <= 100_000, "{}", SHIPPED.len());
    assert!(EcnModel::of_file(LAECN, SHIPPED).is_ok());
}
