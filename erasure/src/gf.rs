//! The field: GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), whose generator is 2.
//!
//! Addition is xor. Multiplication here is by logarithms, for the few coefficients of a code. The
//! [kernels](crate::Kernel) multiply bytes of packets by the tables below.

/// 2^8 reduced: the polynomial without its highest term.
pub(crate) const REDUCTION: u8 = 0x1d;

/// The product of two elements.
#[must_use]
#[inline]
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[log(a) + log(b)]
}

/// `a / b`.
///
/// # Panics
/// If `b` is zero.
#[must_use]
#[inline]
pub(crate) fn div(a: u8, b: u8) -> u8 {
    mul(a, inv(b))
}

/// `1 / a`.
///
/// # Panics
/// If `a` is zero.
#[must_use]
#[inline]
pub(crate) fn inv(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[ORDER - log(a)]
}

/// 2 to the power of `n`.
#[must_use]
#[inline]
pub(crate) fn exp(n: usize) -> u8 {
    EXP[n % ORDER]
}

/// The products of `c` with 0x00..=0x0f, and then with 0x00, 0x10, ..= 0xf0: a product is the xor
/// of one of each half.
#[must_use]
#[inline]
pub(crate) fn nibbles(c: u8) -> &'static [u8; 32] {
    &NIBBLES.0[usize::from(c)]
}

/// Multiplication with `c` as a matrix over bits: bit i of the product is the sum of the factor's
/// bits selected by byte 7 - i.
#[cfg(any(target_arch = "x86_64", test))]
#[must_use]
#[inline]
pub(crate) fn matrix(c: u8) -> u64 {
    MATRICES[usize::from(c)]
}

/// The discrete logarithm of an element to base 2, 0..[`ORDER`]. Unspecified for zero.
#[must_use]
#[inline]
pub(crate) fn log(a: u8) -> usize {
    usize::from(LOG[usize::from(a)])
}

/// The order of the multiplicative group: all elements but zero.
pub(crate) const ORDER: usize = 255;

/// Powers of 2, repeated twice, so that the sum of two logarithms needs no division.
static EXP: [u8; 2 * ORDER] = {
    let mut exp = [0; 2 * ORDER];
    let mut power = 1;
    let mut n = 0;
    while n < exp.len() {
        exp[n] = power;
        power = double(power);
        n += 1;
    }
    exp
};

/// Logarithms to the base of 2; that of zero is unused.
static LOG: [u8; 256] = {
    let mut log = [0; 256];
    let mut power = 1u8;
    let mut n = 0u8;
    while n < 255 {
        log[power as usize] = n;
        power = double(power);
        n += 1;
    }
    log
};

/// A table for each factor, in half a cache line.
#[repr(align(64))]
struct Nibbles([[u8; 32]; 256]);

static NIBBLES: Nibbles = {
    let mut all = [[0; 32]; 256];
    let mut c = 0u8;
    loop {
        // Bit by bit: the product with 2^n is n doublings of `c`; the others are sums of those.
        let of = &mut all[c as usize];
        let mut power = c;
        let mut bit = 0;
        while bit < 8 {
            let (half, at) = if bit < 4 { (0, 1 << bit) } else { (16, 1 << (bit - 4)) };
            let mut below = 0;
            while below < at {
                of[half + at + below] = of[half + below] ^ power;
                below += 1;
            }
            power = double(power);
            bit += 1;
        }
        if c == 255 {
            break Nibbles(all);
        }
        c += 1;
    }
};

#[cfg(any(target_arch = "x86_64", test))]
static MATRICES: [u64; 256] = {
    let mut all = [0; 256];
    let mut c = 0u8;
    loop {
        let mut power = c;
        let mut from = 0;
        while from < 8 {
            let mut to = 0;
            while to < 8 {
                let bit = (power >> to & 1) as u64;
                all[c as usize] |= bit << (8 * (7 - to) + from);
                to += 1;
            }
            power = double(power);
            from += 1;
        }
        if c == 255 {
            break all;
        }
        c += 1;
    }
};

/// `2 * a`.
const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product by the definition: shifted copies of `a`, reduced by long division.
    fn on_paper(a: u8, b: u8) -> u8 {
        let set = (0..8).filter(|bit| b >> bit & 1 == 1);
        let mut product = set.fold(0, |sum, bit| sum ^ (u16::from(a) << bit));
        for bit in (8..15).rev() {
            if product >> bit & 1 == 1 {
                product ^= 0x11d << (bit - 8);
            }
        }
        u8::try_from(product).unwrap()
    }

    #[test]
    fn mul__matches_the_definition_for_every_pair() {
        for (a, b) in (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
            assert_eq!(mul(a, b), on_paper(a, b), "{a} * {b}");
        }
        assert_eq!(mul(0x80, 2), 29);
    }

    #[test]
    fn div__undoes_mul() {
        for (a, b) in (0..=255).flat_map(|a| (1..=255).map(move |b| (a, b))) {
            assert_eq!(div(mul(a, b), b), a, "{a} / {b}");
        }
    }

    #[test]
    fn inv__of_every_element_and_a_known_one() {
        for a in 1..=255 {
            assert_eq!(on_paper(a, inv(a)), 1, "{a}");
        }
        assert_eq!(inv(2), 142);
    }

    #[test]
    #[should_panic(expected = "zero has no inverse")]
    fn inv__of_zero_is_rejected() {
        let _ = inv(0);
    }

    #[test]
    fn exp__is_periodic() {
        assert_eq!([0, 1, 7, 8, 254, 255, 256, 510].map(exp), [1, 2, 128, 29, 142, 1, 2, 1]);
    }

    #[test]
    fn nibbles__make_the_product_of_every_pair() {
        for (c, a) in (0..=255).flat_map(|c| (0..=255u8).map(move |a| (c, a))) {
            let (low, high) = nibbles(c).split_at(16);
            assert_eq!(low[usize::from(a & 15)] ^ high[usize::from(a >> 4)], on_paper(c, a));
        }
    }

    #[test]
    fn matrix__makes_the_product_of_every_pair() {
        for (c, a) in (0..=255).flat_map(|c| (0..=255u8).map(move |a| (c, a))) {
            let rows = matrix(c).to_be_bytes();
            let product = (0..8).fold(0, |product, i| {
                let odd = (rows[i] & a).count_ones() & 1 == 1;
                product | u8::from(odd) << i
            });
            assert_eq!(product, on_paper(c, a), "{c} * {a}");
        }
    }
}
