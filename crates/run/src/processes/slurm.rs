//! Parsing of the environment variables of a Slurm job step.

use anyhow::Result;

use super::number;

/// Smallest port that is derived from the id of a job.
const FIRST_PORT: usize = 20_000;
/// Number of ports that are derived from ids of jobs.
const PORTS: usize = 20_000;

/// Job step to which this process belongs.
pub(super) struct Step {
    /// Number of processes on this machine.
    pub(super) tasks_here: Option<usize>,
    /// Machine of process 0.
    pub(super) first_machine: Option<String>,
    /// Port of process 0, to which the other processes connect. It depends on the id of the job, so
    /// that jobs on the same machine usually have different ports.
    pub(super) port: u16,
}

/// Job step that the environment variables describe; `None` if the process is not part of a job.
///
/// # Errors
/// If the id of the job or of the machine is not a number.
pub(super) fn step(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Step>> {
    let Some(job) = number(get, "SLURM_JOB_ID")? else { return Ok(None) };
    let node = number(get, "SLURM_NODEID")?.unwrap_or(0);
    let tasks_here =
        get("SLURM_STEP_TASKS_PER_NODE").and_then(|tasks| expanded(&tasks).nth(node)?);
    let first_machine = get("SLURM_STEP_NODELIST").and_then(|list| first_of(&list));
    let port = u16::try_from(FIRST_PORT + job % PORTS).unwrap_or(super::USUAL_PORT);
    Ok(Some(Step { tasks_here, first_machine, port }))
}

/// Numbers of a list such as `4(x2),3`: 4, 4, 3.
fn expanded(list: &str) -> impl Iterator<Item = Option<usize>> {
    list.split(',').flat_map(|part| {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.trim_end_matches(')').parse().unwrap_or(1)),
            None => (part, 1),
        };
        std::iter::repeat_n(count.trim().parse().ok(), times)
    })
}

/// First machine of a list such as `node[07-09,12],other3`: node07. A name can have several
/// brackets: the first machine of `rack[1-2]node[3-4]` is rack1node3.
fn first_of(list: &str) -> Option<String> {
    let (mut first, mut rest) = (String::new(), list);
    loop {
        let end = rest.find([',', '[']).unwrap_or(rest.len());
        first.push_str(&rest[..end]);
        let Some(bracket) = rest[end..].strip_prefix('[') else { break };
        let (ranges, after) = bracket.split_once(']')?;
        first.push_str(ranges.split([',', '-']).next()?);
        rest = after;
    }
    Some(first).filter(|first| !first.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        let numbers = |list: &str| expanded(list).map(Option::unwrap).collect::<Vec<_>>();
        assert_eq!(numbers("4(x2),3"), [4, 4, 3]);
        assert_eq!(numbers("2"), [2]);
        for (list, first) in [
            ("node07", "node07"),
            ("node07,other3", "node07"),
            ("node[07-09,12],other3", "node07"),
            ("rack[1]-node,x", "rack1-node"),
            ("rack[1-2]node[3-4]", "rack1node3"),
            ("rack[1,5]node[03-04]-ib,x[1-2]", "rack1node03-ib"),
        ] {
            assert_eq!(first_of(list).as_deref(), Some(first));
        }
        assert_eq!(first_of(""), None);
        assert_eq!(first_of("rack[1-2"), None);
    }
}
