//! Environment variables with which launchers tell each process its rank (index among all
//! processes).

use anyhow::{Context, Result, bail};

use super::{Place, USUAL_PORT, number, slurm};

/// Names of the variables that one launcher sets. `rank` and `size` are for the index of the
/// process and the number of processes. `local_rank` and `local_size` are for the same two numbers,
/// but among the processes on this machine only.
struct Names {
    rank: &'static str,
    size: &'static str,
    local_rank: &'static str,
    local_size: &'static str,
    by_mpi: bool,
}

/// Launchers in order of precedence.
const LAUNCHERS: [Names; 4] = [
    // Variables of torchrun, and of launchers that imitate it.
    Names {
        rank: "RANK",
        size: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_size: "LOCAL_WORLD_SIZE",
        by_mpi: false,
    },
    // Open MPI.
    Names {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        by_mpi: true,
    },
    // MPICH, Intel MPI, MVAPICH.
    Names {
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_size: "MPI_LOCALNRANKS",
        by_mpi: true,
    },
    // Variables of srun. The variable with the number of tasks is only set in a job step. So a
    // script that sbatch starts counts as a single process, even if its job has several tasks.
    Names {
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        local_rank: "SLURM_LOCALID",
        local_size: "",
        by_mpi: false,
    },
];

/// See [`Place::of_environment`].
pub(super) fn place(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Place>> {
    for names in LAUNCHERS {
        let (Some(rank), Some(size)) = (number(get, names.rank)?, number(get, names.size)?) else {
            continue;
        };
        if size <= 1 {
            return Ok(None);
        }
        if rank >= size {
            bail!(
                "{} is {rank}, but {} is {size}: processes are counted from 0",
                names.rank,
                names.size
            );
        }
        let of_slurm = slurm::step(get)?;
        let local_size = match names.local_size {
            "" => None,
            name => number(get, name)?,
        };
        let local_size = local_size.or(of_slurm.as_ref().and_then(|step| step.tasks_here));
        // If the number is unknown, each process counts as the only one on its machine.
        let local_size = local_size.unwrap_or(1).max(1);
        let local_rank = number(get, names.local_rank)?.unwrap_or(0);
        if local_rank >= local_size && local_size > 1 {
            bail!(
                "{} is {local_rank}, but this machine has {local_size} of the processes",
                names.local_rank
            );
        }
        // If an agent of torchrun has started this process, torchrun itself listens at
        // `MASTER_PORT`, so the processes connect at the next port.
        let by_agent = get("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
        // If all processes run on this machine, the host name from torchrun or Slurm is not used,
        // because process 0 would then accept connections from other machines.
        let is_one_machine = local_size == size;
        let host = get("MASTER_ADDR").filter(|host| !host.is_empty());
        let host = host.filter(|_| !(by_agent && is_one_machine)).or_else(|| {
            let step = of_slurm.as_ref().filter(|_| !is_one_machine)?;
            step.first_machine.clone()
        });
        let mut port = port(get, of_slurm.map_or(USUAL_PORT, |step| step.port))?;
        if by_agent {
            port = port.checked_add(1).unwrap_or(USUAL_PORT);
        }
        let by_mpi = names.by_mpi;
        // `mpirun` or `srun` can also have started a script that sets the variables of torchrun.
        let can_be_bound = LAUNCHERS[1..].iter().any(|one| get(one.rank).is_some());
        return Ok(Some(Place {
            rank,
            size,
            local_rank,
            local_size,
            by_mpi,
            can_be_bound,
            host,
            port,
        }));
    }
    Ok(None)
}

/// The port that `MASTER_PORT` names, or `usual` if it is not set.
fn port(get: &dyn Fn(&str) -> Option<String>, usual: u16) -> Result<u16> {
    match number(get, "MASTER_PORT")? {
        None => Ok(usual),
        Some(port) => u16::try_from(port)
            .ok()
            .filter(|&port| port > 0)
            .context("MASTER_PORT is not a port: use a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Place>> {
        place(&|name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn read_one(variables: &[(&str, &str)]) -> Place {
        read(variables).expect("consistent").expect("several processes")
    }

    #[test]
    fn each_launcher_is_understood() {
        assert_eq!(read(&[]).expect("nothing"), None);
        assert_eq!(read(&[("RANK", "7")]).expect("another program's"), None);
        assert_eq!(read(&[("RANK", "0"), ("WORLD_SIZE", "1")]).expect("one"), None);
        let place = read_one(&[
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "node1"),
            ("MASTER_PORT", "1234"),
        ]);
        let rendezvous = place.rendezvous(String::new()).expect("known");
        assert_eq!((rendezvous.rank, rendezvous.size, rendezvous.port), (5, 8, 1234));
        assert_eq!((rendezvous.host.as_str(), place.local_rank, place.local_size), ("node1", 1, 4));
        // torchrun uses the port itself, so the next one is chosen.
        let agent = ("TORCHELASTIC_USE_AGENT_STORE", "True");
        let place = read_one(&[("RANK", "0"), ("WORLD_SIZE", "2"), agent]);
        assert_eq!(place.port, USUAL_PORT + 1);
        // torchrun sets MASTER_ADDR even if all processes run on its own machine; then the name is
        // not used.
        for (here, host) in [("2", "127.0.0.1"), ("1", "node1")] {
            let (size, name) = (("WORLD_SIZE", "2"), ("MASTER_ADDR", "node1"));
            let place = read_one(&[("RANK", "0"), size, ("LOCAL_WORLD_SIZE", here), name, agent]);
            assert_eq!(place.rendezvous(String::new()).expect("known").host, host);
        }
        let place = read_one(&[
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ]);
        assert!(place.by_mpi);
        assert_eq!(place.rendezvous(String::new()).expect("one machine").host, "127.0.0.1");
        let place = read_one(&[("PMI_RANK", "1"), ("PMI_SIZE", "3")]);
        assert!(place.by_mpi && place.rendezvous(String::new()).is_err());
    }

    #[test]
    fn a_step_of_slurm_is_found_and_a_batch_script_is_none() {
        let job = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_ID", "70123")];
        assert_eq!(read(&job).expect("a script"), None);
        let place = read_one(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_STEP_NUM_TASKS", "5"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NODEID", "1"),
            ("SLURM_STEP_TASKS_PER_NODE", "3,2"),
            ("SLURM_STEP_NODELIST", "node[07-08]"),
            ("SLURM_JOB_ID", "70123"),
        ]);
        assert_eq!((place.rank, place.size, place.local_size), (3, 5, 2));
        assert_eq!(place.host.as_deref(), Some("node07"));
        assert_eq!(place.port, 30_123);
        // On a single machine, no process from outside needs to connect.
        let place = read_one(&[
            ("SLURM_PROCID", "3"),
            ("SLURM_STEP_NUM_TASKS", "5"),
            ("SLURM_STEP_TASKS_PER_NODE", "5"),
            ("SLURM_STEP_NODELIST", "node07"),
            ("SLURM_JOB_ID", "70123"),
        ]);
        assert_eq!(place.rendezvous(String::new()).expect("known").host, "127.0.0.1");
    }

    #[test]
    fn contradictions_are_named() {
        let message =
            |variables: &[(&str, &str)]| read(variables).expect_err("refused").to_string();
        assert!(message(&[("RANK", "2"), ("WORLD_SIZE", "2")]).contains("RANK is 2"));
        assert!(message(&[("RANK", "x"), ("WORLD_SIZE", "2")]).contains("RANK is \"x\""));
        let port = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "70000")];
        assert!(message(&port).contains("MASTER_PORT"));
    }
}
