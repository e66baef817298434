//! Rank and size from the environment of the usual launchers.

use std::env;

use crate::error::Error;
use crate::socket::{Identity, Rendezvous};

/// The variable with the rendezvous.
pub(crate) const RENDEZVOUS: &str = "CUDA_DISTRIBUTED_RENDEZVOUS";

/// Ranks of a world: each has a thread or two in rank 0's process.
const MOST_RANKS: u32 = 65_536;

/// The variables of one launcher.
struct Launcher {
    rank: &'static str,
    size: &'static str,
    local: &'static str,
    /// Equal for all ranks of one job.
    job: &'static str,
}

const LAUNCHERS: [Launcher; 3] = [
    // torchrun.
    Launcher { rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_RANK", job: "TORCHELASTIC_RUN_ID" },
    // mpirun of Open MPI.
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
        job: "PMIX_NAMESPACE",
    },
    // srun.
    Launcher {
        rank: "SLURM_PROCID",
        size: "SLURM_NTASKS",
        local: "SLURM_LOCALID",
        job: "SLURM_JOB_ID",
    },
];

/// A process among those that a launcher started.
#[derive(Clone, Debug)]
pub(crate) struct Launched {
    pub(crate) identity: Identity,
    /// The number of the process on its host.
    pub(crate) local: u32,
    pub(crate) rendezvous: Rendezvous,
}

/// Reads the variables of the first launcher that is there.
pub(crate) fn launched(
    rendezvous: Option<Rendezvous>,
    get: impl Fn(&str) -> Option<String>,
) -> Result<Launched, Error> {
    let launcher = LAUNCHERS.iter().find(|launcher| get(launcher.rank).is_some());
    let launcher = launcher.ok_or(Error::Environment {
        variable: LAUNCHERS[0].rank,
        reason: "is unset; start one process per device with torchrun, mpirun or srun, or set \
                 RANK, WORLD_SIZE and LOCAL_RANK"
            .to_owned(),
    })?;
    let number = |variable: &'static str| {
        let text = get(variable).unwrap_or_default();
        text.parse::<u32>().map_err(|_| Error::Environment {
            variable,
            reason: format!("is `{text}`; set it to a number, as {} is", launcher.rank),
        })
    };
    let (rank, size) = (number(launcher.rank)?, number(launcher.size)?);
    if rank >= size {
        let reason = format!("is {rank} of {size} ranks; ranks count from 0");
        return Err(Error::Environment { variable: launcher.rank, reason });
    }
    if size > MOST_RANKS {
        let reason = format!("is {size}; a world has at most {MOST_RANKS} ranks");
        return Err(Error::Environment { variable: launcher.size, reason });
    }
    let named = match (rendezvous, get(RENDEZVOUS)) {
        (Some(rendezvous), _) => Some(rendezvous),
        (None, Some(text)) => Some(text.parse()?),
        (None, None) => None,
    };
    // The launcher listens on its own port. The next one is this world's.
    let beside = match (get("MASTER_ADDR"), get("MASTER_PORT")) {
        (Some(host), Some(text)) if named.is_none() => {
            let next = text.parse::<u16>().ok().and_then(|port| port.checked_add(1));
            let port = next.ok_or_else(|| Error::Environment {
                variable: "MASTER_PORT",
                reason: format!("is `{text}`; set it to a port below 65535"),
            })?;
            Some(Rendezvous::Address(format!("{host}:{port}")))
        }
        _ => None,
    };
    let rendezvous = named.or(beside).ok_or(Error::Environment {
        variable: RENDEZVOUS,
        reason: "is unset; set it to a host of rank 0 and a free port there, HOST:PORT, or to \
                 file:PATH on one host"
            .to_owned(),
    })?;
    let (rank, size) = (rank as usize, size as usize);
    let job = get(launcher.job).unwrap_or_default();
    Ok(Launched {
        identity: Identity { rank, size, job },
        local: number(launcher.local)?,
        rendezvous,
    })
}

/// A variable of this process, unless it is empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Launched, Error> {
        launched(None, |name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn each_launcher_is_understood() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "job 7"),
        ];
        let it = of(&torchrun).unwrap();
        assert_eq!((it.identity.rank, it.identity.size, it.local), (3, 4, 1));
        assert_eq!((it.rendezvous.to_string(), &*it.identity.job), ("node0:29501".into(), "job 7"));
        let place = (RENDEZVOUS, "file:/tmp/world");
        for prefix in ["OMPI_COMM_WORLD_", "SLURM_"] {
            let names = match prefix {
                "SLURM_" => ["PROCID", "NTASKS", "LOCALID"],
                _ => ["RANK", "SIZE", "LOCAL_RANK"],
            };
            let names = names.map(|name| format!("{prefix}{name}"));
            let [rank, size, local] = names.each_ref().map(String::as_str);
            let it = of(&[(rank, "1"), (size, "2"), (local, "0"), place]).unwrap();
            assert_eq!((it.identity.rank, it.identity.size, it.local), (1, 2, 0));
            assert_eq!(it.rendezvous.to_string(), "file:/tmp/world");
            let error = of(&[(rank, "1"), (size, "2"), (local, "0")]).unwrap_err().to_string();
            assert!(error.contains(RENDEZVOUS), "{error}");
        }
    }

    #[test]
    fn a_wrong_environment_is_named() {
        for (variables, named) in [
            (&[][..], "torchrun"),
            (&[("RANK", "x"), ("WORLD_SIZE", "2")], "RANK is `x`"),
            (&[("RANK", "0")], "WORLD_SIZE is ``"),
            (&[("RANK", "2"), ("WORLD_SIZE", "2")], "RANK is 2 of 2"),
            (&[("RANK", "2"), ("WORLD_SIZE", "4000000000")], "at most 65536 ranks"),
            (
                &[
                    ("RANK", "0"),
                    ("WORLD_SIZE", "2"),
                    ("MASTER_ADDR", "node0"),
                    ("MASTER_PORT", "65535"),
                ],
                "MASTER_PORT is `65535`",
            ),
        ] {
            let error = of(variables).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
