use super::*;

/// Five states in a row. Action 1 moves right, action 0 left; reaching the right end gives 1 and
/// ends an episode.
fn chain(place: usize, action: usize) -> (f32, Option<usize>) {
    match (action, place) {
        (1, 3) => (1.0, None),
        (1, _) => (0.0, Some(place + 1)),
        _ => (0.0, Some(place.saturating_sub(1))),
    }
}

fn one_hot(place: usize) -> Vec<f32> {
    (0..5).map(|own| if own == place { 1.0 } else { 0.0 }).collect()
}

/// A learner of the chain, from random walks, with outcomes of up to `most` steps.
fn learner(config: DqnConfig, seed: u64, most: u64, steps: u32) -> (Dqn, f32) {
    let mut dqn = Dqn::new(config, &[5, 16, 2], seed);
    let mut rng = Rng::new(seed ^ 0x77);
    let mut place = 0;
    for _ in 0..3_000 {
        let action = usize::from(rng.below(2) == 1);
        let (mut rewards, mut next) = (Vec::new(), Some(place));
        // The same action for several steps, as a policy network's choice stays in force.
        for _ in 0..=rng.below(most) {
            let Some(here) = next else { break };
            let (reward, after) = chain(here, action);
            rewards.push(reward);
            next = after;
        }
        let outcome = several_steps(rewards, 0.9, next.map(one_hot));
        dqn.remember(Transition { state: one_hot(place), action, outcome });
        place = next.unwrap_or(0);
    }
    let losses: Vec<f32> = (0..steps).filter_map(|_| dqn.learn()).collect();
    let last = &losses[losses.len().saturating_sub(50)..];
    let mean = last.iter().sum::<f32>() / 50.0;
    (dqn, mean)
}

#[test]
fn learn__solves_a_chain_of_five_states() {
    for (is_double, most) in [(true, 1), (false, 1), (true, 3)] {
        let config = DqnConfig { is_double, ..DqnConfig::default() };
        let (dqn, loss) = learner(config, 3, most, 1_500);
        // Several steps at random are more than a state can predict.
        assert!(most > 1 || loss < 0.01, "{loss}");
        let mut scratch = Scratch::default();
        let mut best = 1.0;
        for place in (0..4).rev() {
            let values = dqn.network().forward(&one_hot(place), &mut scratch);
            assert_eq!(argmax(values), Some(1), "{place}: {values:?}");
            if most == 1 {
                assert!((values[1] - best).abs() < 0.05, "{place}: {values:?}, not {best}");
                best *= 0.9;
            }
        }
    }
}

#[test]
fn learn__equal_seeds_give_equal_bits() {
    let bits = |seed| {
        let (dqn, _) = learner(DqnConfig::default(), seed, 2, 200);
        dqn.network().parameters().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(1), bits(1));
    assert_ne!(bits(1), bits(2));
    // On every machine, in debug and release.
    let fold = |hash: u64, bits: u32| (hash ^ u64::from(bits)).wrapping_mul(0x0100_0000_01b3);
    let hash = bits(1).into_iter().fold(0xcbf2_9ce4_8422_2325, fold);
    assert_eq!(hash, TRAINED_HASH, "{hash:#x}");
}

#[test]
fn learn__the_target_is_copied_every_so_many_steps() {
    let (mut dqn, _) = learner(DqnConfig { copy_every: 7, ..DqnConfig::default() }, 1, 1, 7);
    assert_eq!(dqn.target, dqn.network);
    for _ in 0..6 {
        let before = dqn.target.clone();
        dqn.learn();
        assert!(dqn.target == before && dqn.target != dqn.network);
    }
    dqn.learn();
    assert_eq!(dqn.target, dqn.network);
}

#[test]
fn learn__nothing_without_samples() {
    let mut dqn = Dqn::new(DqnConfig::default(), &[5, 2], 1);
    let before = dqn.network().clone();
    assert_eq!(dqn.learn(), None);
    assert_eq!(dqn.network(), &before);
}

#[test]
fn wanted__a_double_learner_chooses_by_its_own_network() {
    let network = |biases: [f32; 2]| {
        let mut network = Network::zeros(&[1, 2]);
        network.parameters_mut().skip(2).zip(biases).for_each(|(own, new)| *own = new);
        network
    };
    let (own, target) = (network([1.0, 2.0]), network([10.0, 4.0]));
    let outcome = several_steps([1.0, 2.0], 0.5, Some(vec![0.0]));
    let of = |is_double| wanted(&outcome, &own, &target, is_double, &mut Scratch::default());
    assert_eq!((of(true), of(false)), (2.0 + 0.25 * 4.0, 2.0 + 0.25 * 10.0));
    let end = Outcome { next: None, ..outcome.clone() };
    assert_eq!(wanted(&end, &own, &target, true, &mut Scratch::default()), 2.0);
}

/// Of the weights of a training.
const TRAINED_HASH: u64 = 0x8372_25d1_a514_e45e;
