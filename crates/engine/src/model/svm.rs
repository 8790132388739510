// SPDX-License-Identifier: MPL-2.0

//! The regressor: nu-SVR with a radial basis kernel, in the text format of libsvm.

use std::ops::Range;

use super::error::Problem;

/// A trained regressor.
#[derive(Debug)]
pub(super) struct Svr {
    gamma: f64,
    rho: f64,
    vectors: Vec<SupportVector>,
    /// Index, from 0, and value of the elements of all support vectors. Missing elements are 0.
    elements: Vec<(usize, f64)>,
}

#[derive(Debug)]
struct SupportVector {
    coefficient: f64,
    elements: Range<usize>,
}

impl Svr {
    /// Parses the text of a regressor.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut reader = Reader { text, at: 0 };
        let [mut gamma, mut rho] = [None; 2];
        let mut count: Option<usize> = None;
        loop {
            let only = |word: &str, known: &str| match word == known {
                true => Ok(()),
                false => Err(format!("`{word}` is not supported, only {known}")),
            };
            let done = match reader.word() {
                "svm_type" => only(reader.word(), "nu_svr"),
                "kernel_type" => only(reader.word(), "rbf"),
                "nr_class" => only(reader.word(), "2"),
                "gamma" => number(reader.word()).map(|value| gamma = Some(value)),
                "rho" => number(reader.word()).map(|value| rho = Some(value)),
                "total_sv" => {
                    let word = reader.word();
                    count = word.parse().ok();
                    count.map(|_| ()).ok_or_else(|| format!("`{word}` is no number"))
                }
                // Used by other kernels and for probability estimates.
                "degree" | "coef0" | "probA" => number(reader.word()).map(|_| ()),
                "SV" => break,
                word => Err(format!("unknown word `{word}` in the header")),
            };
            done.map_err(|reason| reader.problem(reason))?;
        }
        let (Some(gamma), Some(rho), Some(count)) = (gamma, rho, count) else {
            return Err(reader.problem("the header lacks gamma, rho or total_sv".into()));
        };

        let mut svr = Self { gamma, rho, vectors: Vec::new(), elements: Vec::new() };
        while svr.vectors.len() < count {
            let line = reader.line();
            svr.push(line).map_err(|reason| reader.problem(reason))?;
        }
        Ok(svr)
    }

    /// Adds a support vector: its coefficient, then `index:value` with ascending indices from 1.
    fn push(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let coefficient = number(words.next().ok_or("a support vector is missing")?)?;
        let start = self.elements.len();
        let mut last = 0usize;
        for word in words {
            let (index, value) = word.split_once(':').ok_or_else(|| format!("`{word}` is no index:value"))?;
            let index = index
                .parse()
                .ok()
                .filter(|index| *index > last)
                .ok_or_else(|| format!("`{word}`: indices must ascend from 1"))?;
            self.elements.push((index - 1, number(value)?));
            last = index;
        }
        self.vectors.push(SupportVector { coefficient, elements: start..self.elements.len() });
        Ok(())
    }

    /// Computes the regression at `x`. The order of all operations is libsvm's.
    pub fn predict(&self, x: &[f64]) -> f64 {
        let terms = self.vectors.iter().map(|vector| {
            let mut distance = 0.0;
            let mut next = 0;
            for &(index, value) in &self.elements[vector.elements.clone()] {
                for skipped in x.iter().take(index).skip(next) {
                    distance += skipped * skipped;
                }
                let difference = x.get(index).unwrap_or(&0.0) - value;
                distance += difference * difference;
                next = index + 1;
            }
            for rest in x.iter().skip(next) {
                distance += rest * rest;
            }
            vector.coefficient * (-self.gamma * distance).exp()
        });
        terms.fold(0.0, |sum, term| sum + term) - self.rho
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| format!("`{text}` is no number"))
}

/// Reads the text word by word; an empty string marks the end.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn until(&mut self, delimiters: &[char]) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(delimiters).unwrap_or(rest.len());
        self.at = (self.at + end + 1).min(self.text.len());
        &rest[..end]
    }

    /// Reads the next word of the header. Exactly one blank or line break separates words.
    fn word(&mut self) -> &'a str {
        self.until(&[' ', '\n'])
    }

    fn line(&mut self) -> &'a str {
        self.until(&['\n'])
    }

    /// Creates an error for the item that was read last.
    fn problem(&self, reason: String) -> Problem {
        let read = &self.text[..self.at];
        let breaks = read.strip_suffix('\n').unwrap_or(read).matches('\n').count();
        Problem::Regressor { line: breaks + 1, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "svm_type nu_svr\nkernel_type rbf\ngamma 0.5\nnr_class 2\n";

    #[test]
    fn left_out_elements_are_zero_wherever_they_are() {
        let parse = |vectors| Svr::parse(&format!("{HEAD}total_sv 2\nrho 0.25\nSV\n{vectors}")).unwrap();
        let sparse = parse("2 2:0.5 \n-1\n");
        let dense = parse("2 1:0 2:0.5 3:0\n-1 1:0 2:0 3:0");
        let x = [0.3, -0.7, 1.1];
        assert_eq!(sparse.predict(&x), dense.predict(&x));
        // Elements beyond the features are multiplied with an x of 0.
        let beyond = parse("2 2:0.5 4:3\n-1");
        assert_eq!(beyond.predict(&x), beyond.predict(&[0.3, -0.7, 1.1, 0.0]));
        assert_ne!(beyond.predict(&x), dense.predict(&x));
    }

    #[test]
    fn bad_text_is_reported_with_its_line() {
        for (text, line, reason) in [
            ("", 1, "unknown word `` in the header"),
            ("svm_type c_svc\n", 1, "`c_svc` is not supported, only nu_svr"),
            ("svm_type nu_svr\nkernel_type linear\n", 2, "`linear` is not supported, only rbf"),
            ("gamma x\n", 1, "`x` is no number"),
            ("gamma inf\n", 1, "`inf` is no number"),
            ("gamma 1\n\nrho 1\n", 2, "unknown word `` in the header"),
            ("gamma 1\nrho 1\nSV\n", 3, "the header lacks gamma, rho or total_sv"),
            ("gamma 1\nrho 1\ntotal_sv 1\nSV\n", 4, "a support vector is missing"),
            ("gamma 1\nrho 1\ntotal_sv 18446744073709551615\nSV\n1 1:2\n", 5, "a support vector is missing"),
            ("gamma 1\nrho 1\ntotal_sv 2\nSV\n1 1:2\n1 x\n", 6, "`x` is no index:value"),
            ("gamma 1\nrho 1\ntotal_sv 1\nSV\n1 0:2\n", 5, "`0:2`: indices must ascend from 1"),
            ("gamma 1\nrho 1\ntotal_sv 1\nSV\n1 2:2 2:3\n", 5, "`2:3`: indices must ascend from 1"),
            ("gamma 1\nrho 1\ntotal_sv 1\nSV\n1 1:\n", 5, "`` is no number"),
        ] {
            let error = Svr::parse(text).unwrap_err();
            assert_eq!(error.to_string(), format!("line {line} of the regressor: {reason}"), "{text:?}");
        }
    }

    #[test]
    fn absurd_figures_cost_nothing() {
        let svr = Svr::parse(&format!("{HEAD}total_sv 1\nrho 0\nSV\n1 18446744073709551615:1")).unwrap();
        assert_eq!(svr.predict(&[0.0]), (-0.5f64).exp());
    }
}
