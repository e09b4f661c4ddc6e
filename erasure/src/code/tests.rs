use super::*;

/// Data bytes 1..=8, one in each packet, and their parity.
const BYTES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn parity_of(code: Code, data: &[&[u8]]) -> Vec<Vec<u8>> {
    let len = data.iter().map(|packet| packet.len()).max().unwrap_or(0);
    let mut parity = vec![vec![0xee; len]; code.y()];
    code.encode(data, &mut parity);
    parity
}

/// Parity computed byte by byte from the coefficients.
fn by_hand(code: Code, data: &[&[u8]], len: usize) -> Vec<Vec<u8>> {
    let byte = |row, at| {
        (0..).zip(data).fold(0, |sum, (column, packet)| {
            sum ^ gf::mul(code.coefficient(row, column), *packet.get(at).unwrap_or(&0))
        })
    };
    (0..code.y()).map(|row| (0..len).map(|at| byte(row, at)).collect()).collect()
}

#[test]
fn scheme__ids_round_trip() {
    assert_eq!(Scheme::PQ.id(), 1);
    assert_eq!(Scheme::CAUCHY.id(), 2);
    for scheme in [Scheme::PQ, Scheme::CAUCHY] {
        assert_eq!(Scheme::from_id(scheme.id()), Some(scheme));
    }
    assert_eq!([0, 3, 255].map(Scheme::from_id), [None; 3]);
    assert_eq!([1, 2, 3].map(Scheme::for_parity), [Scheme::PQ, Scheme::PQ, Scheme::CAUCHY]);
}

#[test]
fn new__accepts_valid_codes_and_explains_errors() {
    use CodeError::{NoData, NoParity, TooMuchData, TooMuchParity};
    for (scheme, x, y, wanted) in [
        (Scheme::PQ, 8, 2, Ok(())),
        (Scheme::PQ, 1, 1, Ok(())),
        (Scheme::PQ, 255, 2, Ok(())),
        (Scheme::PQ, 256, 2, Err(TooMuchData { x: 256, most: 255 })),
        (Scheme::PQ, 0, 2, Err(NoData)),
        (Scheme::PQ, 8, 0, Err(NoParity)),
        (Scheme::PQ, 8, 3, Err(TooMuchParity { y: 3, most: 2 })),
        (Scheme::CAUCHY, 8, 2, Ok(())),
        (Scheme::CAUCHY, 255, 1, Ok(())),
        (Scheme::CAUCHY, 256, 1, Err(TooMuchData { x: 256, most: 255 })),
        (Scheme::CAUCHY, 224, 32, Ok(())),
        (Scheme::CAUCHY, 225, 32, Err(TooMuchData { x: 225, most: 224 })),
        (Scheme::CAUCHY, 1, 33, Err(TooMuchParity { y: 33, most: 32 })),
        (Scheme::CAUCHY, 1, 1000, Err(TooMuchParity { y: 1000, most: 32 })),
        (Scheme::CAUCHY, 8, 0, Err(NoParity)),
    ] {
        let made = Code::new(scheme, x, y);
        assert_eq!(made.map(|_| ()), wanted, "{scheme} ({x}, {y})");
        if let Ok(code) = made {
            assert_eq!((code.scheme(), code.x(), code.y()), (scheme, x, y));
        }
    }
    assert_eq!(Code::default(), Code::new(Scheme::PQ, 8, 2).unwrap());
    assert_eq!(Code::default().to_string(), "PQ (8, 2)");
    let message = CodeError::TooMuchData { x: 300, most: 224 }.to_string();
    assert_eq!(message, "300 data packets in a block; the maximum is 224");
}

#[test]
fn coefficient__known_rows() {
    let row = |code: Code, row| (0..8).map(|i| code.coefficient(row, i)).collect::<Vec<_>>();
    let pq = Code::default();
    assert_eq!(row(pq, 0), [1; 8]);
    assert_eq!(row(pq, 1), [1, 2, 4, 8, 16, 32, 64, 128]);
    let cauchy = Code::new(Scheme::CAUCHY, 8, 2).unwrap();
    assert_eq!(row(cauchy, 0), [173, 157, 221, 152, 61, 170, 93, 150]);
    assert_eq!(row(cauchy, 1), [157, 173, 152, 221, 170, 61, 150, 93]);
}

#[test]
fn encode__known_bytes_on_every_kernel() {
    let data: Vec<&[u8]> = BYTES.chunks(1).collect();
    for kernel in Kernel::available() {
        let pq = Code::default().with_kernel(kernel);
        assert_eq!(parity_of(pq, &data), [[8], [16]], "{kernel}");
        let p = Code::new(Scheme::PQ, 8, 1).unwrap().with_kernel(kernel);
        assert_eq!(parity_of(p, &data), [[8]], "{kernel}");
        let cauchy = Code::new(Scheme::CAUCHY, 8, 2).unwrap().with_kernel(kernel);
        assert_eq!(parity_of(cauchy, &data), [[242], [157]], "{kernel}");
    }
}

#[test]
fn encode__packets_of_any_lengths() {
    let bytes: Vec<u8> = (0..1000u16).map(|i| i.wrapping_mul(77).to_be_bytes()[1] ^ 0x5a).collect();
    let full = [300; 8];
    let mut last_short = full;
    last_short[7] = 13;
    let mut two_short = last_short;
    two_short[6] = 100;
    for lens in [
        &full[..],
        &last_short,
        &two_short,
        &full[..3],
        &[300, 300, 1],
        &[1, 300, 2, 299, 300],
        &[0, 300],
        &[5, 4, 3, 2, 1, 0],
        &[0; 4],
        &[],
    ] {
        let data: Vec<&[u8]> = lens.iter().enumerate().map(|(i, len)| &bytes[i..i + len]).collect();
        for (scheme, y) in [(Scheme::PQ, 1), (Scheme::PQ, 2), (Scheme::CAUCHY, 3)] {
            for kernel in Kernel::available() {
                let code = Code::new(scheme, 8, y).unwrap().with_kernel(kernel);
                let mut parity = vec![vec![0xee; 320]; y];
                code.encode(&data, &mut parity);
                assert_eq!(parity, by_hand(code, &data, 320), "{code} on {kernel}: {lens:?}");
            }
        }
    }
}

#[test]
fn encode__more_packets_than_are_read_together() {
    let bytes: Vec<u8> = (0..600u16).map(|i| i.wrapping_mul(91).to_be_bytes()[1]).collect();
    for (scheme, x, y) in [(Scheme::PQ, 255, 2), (Scheme::CAUCHY, 224, 32), (Scheme::PQ, 33, 1)] {
        let code = Code::new(scheme, x, y).unwrap();
        // The longest is in the last group, and the last packet is short.
        let data: Vec<&[u8]> =
            (0..x).map(|i| &bytes[i..][..60 + i % 40 * usize::from(i < x - 1)]).collect();
        let longest = data.iter().map(|packet| packet.len()).max().unwrap();
        assert_eq!(parity_of(code, &data), by_hand(code, &data, longest), "{code}");
    }
}

#[test]
fn add__in_any_order_is_encode() {
    let bytes: Vec<u8> = (0..400u16).map(|i| i.wrapping_mul(83).to_be_bytes()[1]).collect();
    for (scheme, y) in [(Scheme::PQ, 1), (Scheme::PQ, 2), (Scheme::CAUCHY, 1), (Scheme::CAUCHY, 5)]
    {
        let code = Code::new(scheme, 8, y).unwrap();
        let data: Vec<&[u8]> =
            [200, 200, 150, 200, 200, 0, 99].map(|len| &bytes[len / 2..][..len]).into();
        let mut parity = vec![[0; 200]; y];
        for column in [3u8, 0, 6, 2, 5, 1, 4] {
            code.add(column, data[usize::from(column)], &mut parity);
        }
        assert_eq!(parity_of(code, &data), parity, "{code}");
    }
}

#[test]
#[should_panic(expected = "column 8 of a code of 8 data packets")]
fn add__an_unknown_column_is_rejected() {
    Code::default().add(8, &[0; 4], &mut [[0; 4]; 2]);
}

#[test]
#[should_panic(expected = "a data packet longer than parity")]
fn add__parity_that_is_too_short_is_rejected() {
    Code::default().add(0, &[0; 5], &mut [[0; 4]; 2]);
}

#[test]
#[should_panic(expected = "the number of parity packets is that of the code")]
fn add__too_few_parity_packets_are_rejected() {
    Code::default().add(0, &[0; 4], &mut [[0; 4]; 1]);
}

#[test]
#[should_panic(expected = "9 packets in a block of 8")]
fn encode__too_many_data_packets_are_rejected() {
    Code::default().encode(&[&[0; 4][..]; 9], &mut [[0; 4]; 2]);
}

#[test]
#[should_panic(expected = "parity is at least as long as the data")]
fn encode__parity_that_is_too_short_is_rejected() {
    Code::default().encode(&[&[0; 5]], &mut [[0; 4]; 2]);
}
