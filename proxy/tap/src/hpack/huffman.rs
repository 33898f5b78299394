//! Huffman decoding of header strings (RFC 7541, section 5.2 and appendix B).

use super::tables::CODE_LENGTHS;

/// Shortest and longest code in the table, in bits.
const SHORTEST: usize = 5;
const LONGEST: usize = 30;

/// The canonical code by length: where codes of that length begin, and their octets in order.
struct Canonical {
    /// First code of each length, left-aligned in 32 bits.
    first: [u32; LONGEST + 1],
    /// One past the last code of each length, left-aligned in 33 bits.
    end: [u64; LONGEST + 1],
    /// Where each length's octets begin in `octets`.
    start: [usize; LONGEST + 1],
    octets: [u8; 256],
}

static CODE: Canonical = canonical();

const fn canonical() -> Canonical {
    let mut code = Canonical {
        first: [0; LONGEST + 1],
        end: [0; LONGEST + 1],
        start: [0; LONGEST + 1],
        octets: [0; 256],
    };
    let mut next: u64 = 0;
    let mut filled = 0;
    let mut length = 1;
    while length <= LONGEST {
        code.start[length] = filled;
        let shift = 32 - length;
        #[expect(clippy::cast_possible_truncation, reason = "a code of `length` bits, left-aligned in 32")]
        let first = (next << shift) as u32;
        code.first[length] = first;
        let mut octet = 0;
        while octet < 256 {
            if CODE_LENGTHS[octet] as usize == length {
                #[expect(clippy::cast_possible_truncation, reason = "octet is below 256")]
                let symbol = octet as u8;
                code.octets[filled] = symbol;
                filled += 1;
                next += 1;
            }
            octet += 1;
        }
        code.end[length] = next << shift;
        next <<= 1;
        length += 1;
    }
    code
}

/// Appends the decoded string to `out`; `None` when it holds EOS or its padding is longer than 7 bits or not all ones.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut bits: u64 = 0; // left-aligned
    let mut have = 0_usize;
    let mut input = text.iter();
    loop {
        while have <= 56 {
            let Some(&octet) = input.next() else { break };
            bits |= u64::from(octet) << (56 - have);
            have += 8;
        }
        // Behind the input the window is filled with ones, as valid padding is.
        let padded = if have < 64 { bits | (u64::MAX >> have) } else { bits };
        let window = padded >> 32;
        let mut length = SHORTEST;
        while length <= LONGEST && window >= CODE.end[length] {
            length += 1;
        }
        if length > have {
            // Not a whole code: what is left must be padding.
            return (have < 8 && padded == u64::MAX).then_some(());
        }
        if length > LONGEST {
            return None;
        }
        let at = (window - u64::from(CODE.first[length])) >> (32 - length);
        let symbol = CODE.start[length] + usize::try_from(at).ok()?;
        out.push(*CODE.octets.get(symbol)?);
        bits <<= length;
        have -= length;
    }
}
