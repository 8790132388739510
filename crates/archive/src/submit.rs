// SPDX-License-Identifier: MPL-2.0

//! Arguments of the command `archive submit`.

use std::str::FromStr;

use super::merge;
use super::run::Hardware;
use score::error::Error;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    pub merge: merge::Args,
    /// Where to score: this machine, N chunks at a time; Slurm; or Ray, with its own cluster or the one at ADDRESS
    #[arg(long, value_name = "local[:N]|slurm|ray[:ADDRESS]")]
    pub on: Cluster,
    /// Number of further attempts for a chunk that fails
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub retries: u32,
    /// Slurm: generic resources of each task, such as gpu:1
    #[arg(long, value_name = "GRES")]
    pub gres: Option<String>,
    /// Slurm: largest number of tasks in the job array; with more chunks, a task scores several
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub tasks: u32,
    /// Ray: GPUs per chunk, such as 0.25 for four chunks on one GPU
    #[arg(long, value_name = "N", value_parser = gpus)]
    pub gpus: Option<f64>,
    #[command(flatten)]
    pub hardware: Hardware,
    /// Slurm: options of sbatch for all jobs, such as --partition=video
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<String>,
}

/// Machines that score.
#[derive(Clone)]
pub enum Cluster {
    Local(u16),
    Slurm,
    Ray(Option<String>),
}

impl FromStr for Cluster {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, more) = text.split_once(':').map_or((text, None), |(name, more)| (name, Some(more)));
        match (name, more) {
            ("local", None) => Ok(Self::Local(1)),
            ("local", Some(jobs)) => {
                let jobs = jobs.parse().ok().filter(|jobs| (1..=4096).contains(jobs));
                jobs.map(Self::Local).ok_or("N in local:N is a number of chunks from 1 to 4096")
            }
            ("slurm", None) => Ok(Self::Slurm),
            ("ray", address) if address != Some("") => Ok(Self::Ray(address.map(str::to_owned))),
            _ => Err("write local[:N], slurm or ray[:ADDRESS]"),
        }
    }
}

fn gpus(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|gpus| (0.0..=1024.0).contains(gpus)).ok_or("not a number of GPUs")
}

impl Args {
    /// Rejects options of another cluster type.
    pub fn check(&self) -> Result<(), Error> {
        let of_slurm = self.gres.is_some() || !self.options.is_empty();
        match self.on {
            Cluster::Slurm | Cluster::Local(_) if self.gpus.is_some() => {
                Err(Error::Usage("--gpus is an option for Ray; use --gres for Slurm".into()))
            }
            Cluster::Local(_) | Cluster::Ray(_) if of_slurm => {
                Err(Error::Usage("--gres and options after -- are for Slurm".into()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_names_that_say_how_much_or_where() {
        assert!(matches!("local".parse(), Ok(Cluster::Local(1))));
        assert!(matches!("local:8".parse(), Ok(Cluster::Local(8))));
        assert!(matches!("slurm".parse(), Ok(Cluster::Slurm)));
        assert!(matches!("ray".parse(), Ok(Cluster::Ray(None))));
        assert!(matches!("ray:10.0.0.1:6379".parse(), Ok(Cluster::Ray(Some(at))) if at == "10.0.0.1:6379"));
        for wrong in ["", "local:", "local:0", "local:x", "slurm:x", "ray:", "k8s"] {
            assert!(wrong.parse::<Cluster>().is_err(), "{wrong}");
        }
    }
}
