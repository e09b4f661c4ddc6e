//! The calls as a C program sees them: programs in `calls/` against `<infiniband/verbs.h>` of the
//! distribution, which run with this library over UDP sockets of the loopback. Needs
//! `apt-get install libibverbs-dev`.
#![expect(non_snake_case, reason = "tests are named function__case")]

#[path = "support/built.rs"]
mod built;

use built::Built;
use std::net::Ipv4Addr;
use std::process::Output;

/// Settings of the library and of the program: environment variables.
type Settings<'a> = &'a [(&'a str, &'a str)];

const RC: Settings<'_> = &[];
const SR: Settings<'_> = &[("SPANWIRE_MODE", "sr")];

/// Builds a program and runs one of its cases in a process with an address of its own. The next
/// address is that of its other end. Tests need a `number` each; runs that happen to overlap
/// differ in the rest.
fn run(number: u8, program: &str, case: &str, settings: Settings<'_>) -> Option<Output> {
    let built = Built::new(&format!("calls/{number}"), program)?;
    let run = u8::try_from(std::process::id() % 126).expect("less than 126");
    let ran = built
        .command(&[], Ipv4Addr::new(127, 83, number, 1 + 2 * run))
        .arg(case)
        .envs(settings.iter().copied())
        .output()
        .expect("it was just built");
    let said = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(ran.status.success(), "{program} {case}: {}\n{}{}", ran.status, said[0], said[1]);
    Some(ran)
}

/// As [`run`], of a program that has nothing to say, and of which the library has not either.
fn run_quietly(number: u8, program: &str, case: &str, settings: Settings<'_>) {
    if let Some(ran) = run(number, program, case, settings) {
        let said = [ran.stdout, ran.stderr].concat();
        assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
    }
}

/// Tests that run a case of a program: number, name, program, case, settings.
macro_rules! cases {
    ($($number:literal $name:ident $program:literal $case:literal $settings:expr;)*) => {
        $(
            #[test]
            fn $name() {
                run_quietly($number, $program, $case, $settings);
            }
        )*
    };
}

cases! {
    1 errors__of_memory_and_access_rights "errors" "memory" RC;
    2 errors__above_the_limits "errors" "limits" RC;
    3 errors__of_what_is_not_supported "errors" "kinds" RC;
    4 errors__of_null "errors" "null" RC;
    5 modify_qp__refuses_and_keeps_the_state "modify" "modify" RC;
    6 post__to_full_queues "post" "full" RC;
    7 post__refuses_wrong_requests "post" "refused" RC;
    8 post__a_wrong_key_fails_the_queue_pair "post" "local_key" RC;
    9 poll_cq__reports_an_overrun "post" "overrun" RC;
    10 destroy__refuses_objects_in_use "lifetime" "busy" RC;
    11 close_device__leaves_the_objects "lifetime" "close_early" RC;
    12 dereg_mr__the_peer_is_refused "peer" "dereg" RC;
    13 dereg_mr__of_memory_in_use "peer" "dereg_busy" RC;
    14 dereg_mr__of_memory_in_use_sr "peer" "dereg_busy" SR;
    15 retries__end_after_their_time "peer" "killed" RC;
    16 fork__fails_in_the_child_only "peer" "forked" RC;
    17 threads__lose_and_repeat_nothing "threads" "threads" &[("SPANWIRE_TEST_MIB", "64")];
    18 threads__lose_and_repeat_nothing_sr "threads" "threads"
        &[("SPANWIRE_TEST_MIB", "64"), ("SPANWIRE_MODE", "sr")];
    19 threads__lossy "threads" "threads" &[("SPANWIRE_TEST_MIB", "4"), ("SPANWIRE_LOSS", "1")];
    20 threads__lossy_sr "threads" "threads"
        &[("SPANWIRE_TEST_MIB", "4"), ("SPANWIRE_LOSS", "1"), ("SPANWIRE_MODE", "sr")];
    21 order__the_last_byte_is_last "order" "last_byte" RC;
    22 order__sr_promises_none "order" "sr" SR;
    23 data__atomics "data" "atomics" RC;
    24 data__atomics_sr "data" "atomics" SR;
    25 data__immediate "data" "immediate" RC;
    26 data__immediate_sr "data" "immediate" SR;
    27 data__lists_and_inline "data" "lists" RC;
    28 data__lists_and_inline_sr "data" "lists" SR;
    29 data__signals_and_fences "data" "signals" RC;
    30 data__signals_and_fences_sr "data" "signals" SR;
    34 remote__refuses_keys_and_rights "remote" "keys" RC;
    35 remote__refuses_keys_and_rights_sr "remote" "keys" SR;
    36 remote__not_ready_and_drained "remote" "not_ready" RC;
    37 remote__not_ready_and_drained_sr "remote" "not_ready" SR;
    38 random__rc "random" "rc" RC;
    39 random__sr "random" "sr" SR;
    40 random__lossy "random" "lossy" &[("SPANWIRE_LOSS", "1")];
    41 random__lossy_sr "random" "lossy_sr" &[("SPANWIRE_LOSS", "1"), ("SPANWIRE_MODE", "sr")];
    43 create_qp__completion_vectors_are_workers "workers" "vectors" &[("SPANWIRE_WORKERS", "2")];
    44 create_qp__completion_vectors_are_workers_sr "workers" "vectors"
        &[("SPANWIRE_WORKERS", "2"), ("SPANWIRE_MODE", "sr")];
    45 threads__of_one_of_several_workers "threads" "threads"
        &[("SPANWIRE_TEST_MIB", "4"), ("SPANWIRE_WORKERS", "3")];
    46 fork__of_several_workers "peer" "forked" &[("SPANWIRE_WORKERS", "2")];
    47 close_device__of_several_workers "lifetime" "close_early" &[("SPANWIRE_WORKERS", "2")];
    32 close_device__while_threads_open_it "churn" "contexts" RC;
}

#[test]
fn errors__a_taken_port_is_said_in_one_line() {
    let Some(ran) = run(31, "lifetime", "port", RC) else { return };
    let said = String::from_utf8(ran.stderr).expect("UTF-8");
    let [line] = said.lines().collect::<Vec<_>>()[..] else { panic!("not one line: {said}") };
    assert!(line.starts_with("spanwire: ") && line.contains("4791"), "{line}");
    assert!(line.contains("`ss -ulpn` shows which"), "{line}");
}

#[test]
fn errors__without_files_left_are_not_final() {
    let Some(ran) = run(33, "lifetime", "few_files", RC) else { return };
    let said = String::from_utf8(ran.stderr).expect("UTF-8");
    let is_reason = |line: &str| line.starts_with("spanwire: lo: ") && line.contains("open files");
    assert!(said.lines().all(is_reason), "{said}");
    assert!(said.contains("`ulimit -n`") && !said.contains("dmesg"), "{said}");
}

#[test]
fn modify_qp__an_unroutable_peer_is_an_error_and_said() {
    let Some(ran) = run(42, "modify", "unroutable", RC) else { return };
    let said = String::from_utf8(ran.stderr).expect("UTF-8");
    assert!(said.starts_with("spanwire: no path to 192.0.2.1: cannot reach 192.0.2.1"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
