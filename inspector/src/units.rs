//! Numbers as people read them.

/// Bytes in binary units with three digits: `1.23 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (bytes.max(1).ilog2() / 10).min(5);
    if power == 0 {
        return format!("{bytes} B");
    }
    let value = bytes as f64 / (1_u64 << (10 * power)) as f64;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let text = format!("{value:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", UNITS[power as usize])
}

/// A count with thin groups of three: `154,779`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The largest of 1, 2, 5 times a power of ten (or of two, for bytes) that splits `span` into at
/// least `parts`.
pub fn step(span: f64, parts: f64) -> f64 {
    let raw = (span / parts).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(raw.log10().floor());
    let lead = raw / power;
    power
        * if lead >= 5.0 {
            5.0
        } else if lead >= 2.0 {
            2.0
        } else {
            1.0
        }
}

/// As [`step`] for bytes: a power of two.
pub fn byte_step(span: u64, parts: u64) -> u64 {
    1 << (span / parts.max(1)).max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_and_no_needless_zeros() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(1_536 << 20), "1.5 GiB");
        assert_eq!(bytes(47_009_759_232), "43.8 GiB");
        assert_eq!(bytes(100 << 20), "100 MiB");
        assert_eq!(bytes(u64::MAX), "16384 PiB");
    }

    #[test]
    fn counts_are_grouped_by_three() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(154_779), "154,779");
        assert_eq!(count(1_000_000), "1,000,000");
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(step(6725.0, 6.0), 1000.0);
        assert_eq!(step(3.0, 4.0), 0.5);
        assert_eq!(byte_step(33 << 30, 4), 8 << 30);
    }
}
