use super::words;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread;

/// One implementation of access to shared bytes: all must behave alike.
#[derive(Clone, Copy)]
struct Access {
    name: &'static str,
    load: unsafe fn(*const u8, &mut [u8]),
    store: unsafe fn(*mut u8, &[u8]),
    fetch_add: unsafe fn(*mut u64, u64) -> u64,
    compare_swap: unsafe fn(*mut u64, u64, u64) -> u64,
}

const IMPLEMENTATIONS: [Access; 2] = [
    Access {
        name: "native",
        load: super::load,
        store: super::store,
        fetch_add: super::fetch_add,
        compare_swap: super::compare_swap,
    },
    Access {
        name: "words",
        load: words::load,
        store: words::store,
        fetch_add: words::fetch_add,
        compare_swap: words::compare_swap,
    },
];

/// Whole words of memory, accessed only by the functions under test.
struct Memory(*mut u8, usize);

// SAFETY: only `Access` dereferences the pointer, as tests of concurrent access require.
unsafe impl Send for Memory {}

// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(self.0.cast::<u64>(), self.1 / 8);
        // SAFETY: `new` made the pointer from a box; no access can follow.
        drop(unsafe { Box::from_raw(words) });
    }
}

impl Memory {
    fn new(words: usize) -> Self {
        let memory = Box::into_raw(vec![0u64; words].into_boxed_slice());
        Self(memory.cast(), words * 8)
    }

    fn load(&self, access: Access, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.1);
        let mut out = vec![0xee; len];
        // SAFETY: inside the memory; bytes beside it are not accessed.
        unsafe { (access.load)(self.0.add(at), &mut out) };
        out
    }

    fn store(&self, access: Access, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.1);
        // SAFETY: inside the memory.
        unsafe { (access.store)(self.0.add(at), bytes) };
    }

    fn word(&self, at: usize) -> *mut u64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.1);
        // SAFETY: inside the memory.
        unsafe { self.0.add(at).cast() }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (1..=251u8).cycle().take(len).collect()
}

fn lengths() -> impl Iterator<Item = usize> {
    (0..=300).chain([511, 512, 513, 1000, 1024, 1408, 4095, 4096, 4097])
}

#[test]
fn store__writes_its_bytes_and_none_beside_them_at_every_length_and_alignment() {
    for access in IMPLEMENTATIONS {
        for len in lengths() {
            let memory = Memory::new(len / 8 + 24);
            let size = len + 128;
            let bytes = pattern(len);
            for at in (0..40).chain([63, 64, 65]) {
                memory.store(access, 0, &vec![0; size]);
                memory.store(access, at, &bytes);
                let all = memory.load(access, 0, size);
                assert!(all[at..at + len] == bytes, "{}: {len} bytes to {at}", access.name);
                let beside = all[..at].iter().chain(&all[at + len..]);
                assert!(beside.clone().all(|b| *b == 0), "{}: {len} bytes to {at}", access.name);
            }
        }
    }
}

#[test]
fn load__reads_its_bytes_and_writes_none_beside_them_at_every_length_and_alignment() {
    for access in IMPLEMENTATIONS {
        for len in lengths() {
            let memory = Memory::new(len / 8 + 24);
            let bytes = pattern(len + 128);
            memory.store(access, 0, &bytes);
            for at in (0..40).chain([63, 64, 65]) {
                let mut out = vec![0xee; len + 64];
                let place = at % 33;
                // SAFETY: inside the memory.
                unsafe { (access.load)(memory.0.add(at), &mut out[place..place + len]) };
                assert!(out[place..place + len] == bytes[at..at + len], "{}: {len}", access.name);
                let beside = out[..place].iter().chain(&out[place + len..]);
                assert!(beside.clone().all(|b| *b == 0xee), "{}: {len} from {at}", access.name);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn copy__by_vectors_of_either_width_is_the_same() {
    use super::x86_64::{copy_avx, copy_sse};
    let has_avx = std::arch::is_x86_feature_detected!("avx");
    for len in lengths().filter(|len| *len >= 16) {
        for (from, to) in [(0, 0), (1, 0), (0, 1), (13, 29), (31, 17)] {
            let src = &pattern(len + 32)[from..from + len];
            for is_wide in [false, true] {
                let mut dst = vec![0xee; len + 64];
                let at = dst[to..to + len].as_mut_ptr();
                // SAFETY: two slices of `len` bytes, at least as long as a vector that the
                // processor has.
                unsafe {
                    match is_wide && has_avx && len >= 32 {
                        true => copy_avx(src.as_ptr(), at, len),
                        false => copy_sse(src.as_ptr(), at, len),
                    }
                }
                assert!(dst[to..to + len] == *src, "{is_wide}: {len} bytes");
                let beside = dst[..to].iter().chain(&dst[to + len..]);
                assert!(beside.clone().all(|b| *b == 0xee), "{is_wide}: {len} bytes");
            }
        }
    }
}

#[test]
fn fetch_add__and_compare_swap_return_what_was_there() {
    for access in IMPLEMENTATIONS {
        let memory = Memory::new(2);
        memory.store(access, 8, &u64::MAX.to_ne_bytes());
        // SAFETY: an aligned word.
        unsafe {
            assert_eq!((access.fetch_add)(memory.word(8), 3), u64::MAX);
            assert_eq!((access.compare_swap)(memory.word(8), 7, 9), 2);
            assert_eq!((access.compare_swap)(memory.word(8), 2, 9), 2);
            assert_eq!((access.fetch_add)(memory.word(8), 0), 9);
        }
        assert_eq!(memory.load(access, 0, 8), [0; 8]);
    }
}

/// Runs `work` with 0, 1, 2 on a thread each, and `look` repeatedly on this one meanwhile.
fn beside_three(work: impl Fn(u8) + Sync, mut look: impl FnMut()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = &work;
        let workers = [0, 1, 2].map(|n| scope.spawn(move || work(n)));
        scope.spawn(|| {
            let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            is_over.store(true, Ordering::Release);
            assert_eq!(panicked, 0);
        });
        while !is_over.load(Ordering::Acquire) {
            look();
        }
        look();
    });
}

const ROUNDS: u64 = 2000;

#[test]
fn store__of_adjacent_ranges_at_once_loses_no_byte() {
    for access in IMPLEMENTATIONS {
        let memory = Memory::new(64);
        // Three threads own interleaved ranges of odd lengths; each reads its own bytes back.
        let mine = |n: u8| (0..11).map(move |i| (i * 39 + usize::from(n) * 13, 13));
        let work = |n: u8| {
            for round in 0..ROUNDS {
                let bytes = [u8::try_from(round % 200).unwrap() + n; 13];
                for (at, len) in mine(n) {
                    memory.store(access, at, &bytes[..len]);
                    assert_eq!(memory.load(access, at, len), bytes[..len], "{}", access.name);
                }
            }
        };
        beside_three(work, || drop(memory.load(access, 0, 429)));
    }
}

#[test]
fn load__beside_writers_reads_only_written_bytes() {
    for access in IMPLEMENTATIONS {
        let memory = Memory::new(200);
        // Every byte is its offset times one of three odd factors, or zero at first.
        let byte = |at: usize, n: u8| u8::try_from(at % 256).unwrap().wrapping_mul(2 * n + 3);
        let work = |n: u8| {
            for round in 0..ROUNDS {
                let at = usize::try_from(round).unwrap() * 7 % 300;
                let bytes: Vec<u8> = (at..at + 1100).map(|at| byte(at, n)).collect();
                memory.store(access, at, &bytes);
            }
        };
        beside_three(work, || {
            for (at, got) in memory.load(access, 3, 1397).into_iter().enumerate() {
                let may = |n| got == byte(at + 3, n);
                assert!(got == 0 || [0, 1, 2].into_iter().any(may), "{}: {at}: {got}", access.name);
            }
        });
    }
}

/// Copies to `at` beyond a cache line's start that a reader saw in the wrong order. It polls the
/// last byte of each copy, as applications of RDMA do. Every byte of a copy is its round, so a byte
/// is late if the last one of a later round is visible.
fn late_bytes(access: Access, at: usize, len: usize) -> u64 {
    let memory = Memory::new((64 + at + len).div_ceil(8));
    let at = at + memory.0.addr().wrapping_neg() % 64;
    let [begun, done, read] = [const { AtomicU64::new(0) }; 3];
    let write = || {
        let mut bytes = vec![0; len];
        for round in 1..=ROUNDS {
            bytes.fill(round.to_le_bytes()[0]);
            begun.store(round, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            memory.store(access, at, &bytes);
            done.store(round, Ordering::Release);
            // Simultaneous, but without waiting for the reader if its core is busy.
            let is_unread = || read.load(Ordering::Acquire) < round;
            (0..500).take_while(|_| is_unread()).for_each(|_| std::hint::spin_loop());
        }
    };
    let (mut late, mut seen, mut all) = (0, [0], vec![0; len]);
    thread::scope(|scope| {
        let writer = scope.spawn(write);
        while !writer.is_finished() {
            let least = done.load(Ordering::Acquire);
            let last = (0..1000).find_map(|_| {
                let mut last = [0];
                // SAFETY: inside the memory.
                unsafe { (access.load)(memory.0.add(at + len - 1), &mut last) };
                (last != std::mem::replace(&mut seen, last)).then_some(last[0])
            });
            let Some(last) = last else { continue };
            fence(Ordering::Acquire);
            // SAFETY: inside the memory.
            unsafe { (access.load)(memory.0.add(at), &mut all[..1]) };
            // SAFETY: inside the memory.
            unsafe { (access.load)(memory.0.add(at + 1), &mut all[1..]) };
            fence(Ordering::SeqCst);
            let most = begun.load(Ordering::Relaxed);
            read.store(most, Ordering::Release);
            // Otherwise a byte does not tell the round: this thread has been waiting.
            if most - least < 200 {
                let since = u64::from(last.wrapping_sub(least.to_le_bytes()[0]));
                let newer = (most - least).checked_sub(since);
                let is_late = |byte: &u8| Some(u64::from(byte.wrapping_sub(last))) > newer;
                late += u64::from(all.iter().any(is_late));
            }
        }
    });
    late
}

#[test]
fn store__makes_its_last_byte_visible_last() {
    for access in IMPLEMENTATIONS {
        for len in [9, 64, 65, 128, 256, 1000, 4096] {
            // Within a cache line short copies are in order, long ones anywhere.
            let places = if len > 64 { &[0, 29][..] } else { &[0] };
            for at in places {
                let late = late_bytes(access, *at, len);
                assert_eq!(late, 0, "{}: {len} bytes to {at}", access.name);
            }
        }
    }
}

/// Two pages shared with child processes. A child that writes the forbidden one dies there, and
/// leaves what it has written until then.
#[cfg(target_os = "linux")]
struct TwoPages(*mut u8);

#[cfg(target_os = "linux")]
impl TwoPages {
    const PAGE: usize = 4096;

    fn new() -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), 2 * Self::PAGE, access, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self(base.cast())
    }

    /// The pages after a child has stored `bytes` at `at` with page `forbidden` read-only, which
    /// kills it.
    fn after(&self, access: Access, at: usize, bytes: &[u8], forbidden: usize) -> Vec<u8> {
        assert!(at < Self::PAGE && at + bytes.len() <= 2 * Self::PAGE);
        // SAFETY: the child makes system calls and the store, and does not return.
        unsafe {
            std::ptr::write_bytes(self.0, 0, 2 * Self::PAGE);
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                let page = self.0.add(forbidden * Self::PAGE).cast();
                libc::mprotect(page, Self::PAGE, libc::PROT_READ);
                (access.store)(self.0.add(at), bytes);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(libc::WTERMSIG(status), libc::SIGSEGV, "{status}");
            std::slice::from_raw_parts(self.0, 2 * Self::PAGE).to_vec()
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn store__writes_its_first_bytes_first_and_its_last_word_last() {
    const PAGE: usize = TwoPages::PAGE;
    let pages = TwoPages::new();
    for access in IMPLEMENTATIONS {
        for len in [65, 96, 128, 129, 250, 256, 1000, 1024, 1408, 4000] {
            let bytes = vec![7; len];
            for before in [8, 16, 29, 32, 64].into_iter().filter(|n| *n < len) {
                // The first bytes are on the forbidden page, the others not.
                let left = pages.after(access, PAGE - before, &bytes, 0);
                assert!(left.iter().all(|b| *b == 0), "{}: {len}, {before}", access.name);
            }
            for last in [1, 2, 4, 8] {
                let at = PAGE + last - len;
                let left = pages.after(access, at, &bytes, 1);
                let written = &left[at..PAGE];
                assert!(written.iter().all(|b| *b == 7), "{}: {len}, {last}", access.name);
            }
        }
    }
    // SAFETY: the mapping of `new`, with no access after it.
    unsafe { libc::munmap(pages.0.cast(), 2 * PAGE) };
}

#[test]
fn fetch_add__beside_copies_of_its_neighbours_counts_every_one() {
    for access in IMPLEMENTATIONS {
        let memory = Memory::new(6);
        let work = |n: u8| {
            for round in 0..ROUNDS {
                // SAFETY: an aligned word.
                unsafe { (access.fetch_add)(memory.word(16), 1) };
                memory.store(access, 3, &[n; 13]);
                memory.store(access, 24, &round.to_ne_bytes()[..7]);
            }
        };
        let mut last = 0;
        beside_three(work, || {
            let all = memory.load(access, 1, 46);
            let count = u64::from_ne_bytes(all[15..23].try_into().unwrap());
            assert!(count <= 3 * ROUNDS, "{}", access.name);
            last = count;
        });
        assert_eq!(last, 3 * ROUNDS, "{}", access.name);
    }
}

#[test]
fn compare_swap__lets_one_of_three_win_each_round() {
    for access in IMPLEMENTATIONS {
        let memory = Memory::new(1);
        let won = [const { AtomicU64::new(0) }; 3];
        let work = |n: u8| {
            for round in 0..ROUNDS {
                // SAFETY: an aligned word.
                let found = unsafe { (access.compare_swap)(memory.word(0), round, round + 1) };
                won[usize::from(n)].fetch_add(u64::from(found == round), Ordering::Relaxed);
            }
        };
        beside_three(work, || {});
        let wins: u64 = won.iter().map(|won| won.load(Ordering::Relaxed)).sum();
        let word = u64::from_ne_bytes(memory.load(access, 0, 8).try_into().unwrap());
        assert_eq!(wins, word, "{}", access.name);
    }
}
