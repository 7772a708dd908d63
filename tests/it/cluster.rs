//! Several processes: each ends with one clear error when another is lost, or does not fit.

use crate::program::{
    Ended, Running, as_process, assert_same_bytes, committed, cosplay, end, fixture, hosts, run, run_tiny, shipped, tiny, wait_for_run,
};
use cosplay_datasets::RunDir;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// What a process may take to notice that another is lost.
const NOTICE: Duration = Duration::from_secs(10);

/// Kills process `killed` of two in the middle of a step; returns how the other one ended.
fn other_of_killed(killed: usize) -> Ended {
    let folder = TempDir::new().unwrap();
    let hosts = hosts(folder.path(), 2);
    let out = folder.path().join("run");
    // A cold start that does not end by itself within the test.
    let command = |process| {
        let mut command = as_process(run(&shipped("2048.yaml"), &out), &hosts, process);
        command.args(["--set", "graph.start.steps=100000"]);
        command
    };
    let mut processes = vec![Running::start(&mut command(0)), Running::start(&mut command(1))];
    wait_for_run(&out);
    sleep(Duration::from_millis(1_500));
    assert!(processes.iter_mut().all(Running::runs), "a process ended before it was killed");
    drop(processes.remove(killed));
    let ended = processes.remove(0).end_within(NOTICE);
    assert_eq!(committed(&out), 0);
    ended
}

#[test]
fn a_lost_process_ends_the_one_that_writes() {
    other_of_killed(1).expect(1).one_error().says(&["another process of this run is gone", "--resume"]);
}

#[test]
fn the_loss_of_the_process_that_writes_ends_the_other() {
    other_of_killed(0).expect(1).one_error().says(&["another process of this run is gone", "--resume"]);
}

#[test]
fn after_the_loss_of_a_process_all_go_on_together() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("run");
    let session = |resume: bool| {
        let hosts = hosts(folder.path(), 2);
        [0, 1].map(|process| {
            let mut command = cosplay();
            command.arg("run").arg(fixture("tiny.yaml")).arg("--out").arg(&out);
            let mut command = as_process(command, &hosts, process);
            if resume {
                command.arg("--resume");
            }
            Running::start(&mut command)
        })
    };
    let [mut first, second] = session(false);
    assert!(first.wait_for_line("step 1/5"));
    drop(second);
    first.end_within(NOTICE).expect(1).one_error();
    let before = committed(&out);
    assert!((1..5).contains(&before), "{before} steps");
    for process in session(true) {
        process.end_within(Duration::from_secs(60)).expect(0);
    }
    assert_same_bytes(&tiny().path, &out, "resumed after a loss");
}

#[test]
fn the_second_process_may_start_late() {
    let folder = TempDir::new().unwrap();
    let hosts = hosts(folder.path(), 2);
    let out = folder.path().join("run");
    let first = Running::start(&mut as_process(run(&fixture("swift.yaml"), &out), &hosts, 0));
    wait_for_run(&out);
    end(&mut as_process(run(&fixture("swift.yaml"), &out), &hosts, 1)).expect(0);
    first.end_within(NOTICE).expect(0);
}

#[test]
fn processes_with_different_specs_refuse_each_other() {
    let folder = TempDir::new().unwrap();
    for change in [&["--set", "seed=99"][..], &["--workers", "2"]] {
        let hosts = hosts(folder.path(), 2);
        let out = folder.path().join(change[1]);
        let first = Running::start(&mut as_process(run_tiny(&out), &hosts, 0));
        let second = end(as_process(run_tiny(&out), &hosts, 1).args(change));
        let what = if change[0] == "--set" { "resolved specs differ" } else { "--workers differs" };
        second.expect(2).one_error().says(&[what]);
        first.end_within(NOTICE).expect(2).one_error().says(&[what]);
        assert_eq!(committed(&out), 0);
    }
}

fn with_hosts(text: &[u8], process: &str) -> Ended {
    let folder = TempDir::new().unwrap();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, text).unwrap();
    let ended = end(run_tiny(&folder.path().join("run")).arg("--hosts").arg(&hosts).args(["--process", process]));
    assert!(!folder.path().join("run").exists(), "a wrong request has made a run directory");
    ended
}

#[test]
fn wrong_hosts_files_are_refused() {
    for (text, line) in [("localhost\n", 1), ("# mine\n\nhere:1\nthere:99999\n", 4), (":80\n", 1), ("a:b:c\n", 1)] {
        with_hosts(text.as_bytes(), "0").expect(2).one_error().says(&[&format!("hosts:{line}:"), "HOST:PORT"]);
    }
    with_hosts(b"# nobody\n", "0").expect(2).one_error().says(&["no process is listed"]);
    with_hosts(b"\xff\xfe\x00", "0").expect(2).one_error().says(&["not a text file"]);
    with_hosts(b"127.0.0.1:1\n127.0.0.1:2\n", "2").expect(2).one_error().says(&["--process 2", "0 to 1"]);
    with_hosts(b"127.0.0.1:1\n", "-1").expect(2).one_error();
    let missing = end(run_tiny(Path::new("nowhere")).args(["--hosts", "no/such/file", "--process", "0"]));
    missing.expect(2).one_error().says(&["no/such/file"]);
    end(run_tiny(Path::new("nowhere")).args(["--process", "0"])).expect(2).one_error().says(&["--hosts"]);
}

#[test]
fn a_port_in_use_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let folder = TempDir::new().unwrap();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, format!("{address}\n127.0.0.1:9\n")).unwrap();
    let ended = end(&mut as_process(run_tiny(&folder.path().join("run")), &hosts, 0));
    ended.expect(1).one_error().says(&[&address, "hosts file"]);
}

#[test]
fn a_process_waits_in_silence_for_one_that_has_not_come() {
    let folder = TempDir::new().unwrap();
    let hosts = hosts(folder.path(), 2);
    let mut waiting = Running::start(&mut as_process(run_tiny(&folder.path().join("run")), &hosts, 0));
    sleep(Duration::from_millis(1_000));
    assert!(waiting.runs());
    waiting.kill();
    let ended = waiting.end_within(NOTICE);
    assert_eq!((ended.code, ended.stdout.as_str()), (None, ""));
}

#[test]
fn a_process_that_waits_for_others_ends_on_ctrl_c() {
    let folder = TempDir::new().unwrap();
    let hosts = hosts(folder.path(), 2);
    let out = folder.path().join("run");
    let waiting = Running::start(&mut as_process(run_tiny(&out), &hosts, 0));
    wait_for_run(&out);
    waiting.interrupt();
    waiting.end_within(Duration::from_secs(3)).expect(130);
}

#[test]
fn ctrl_c_in_one_process_ends_all() {
    for interrupted in [0, 1] {
        let folder = TempDir::new().unwrap();
        let hosts = hosts(folder.path(), 2);
        let out = folder.path().join("run");
        let mut processes: Vec<Running> = (0..2)
            .map(|process| {
                let mut command = cosplay();
                command.arg("run").arg(fixture("tiny.yaml")).arg("--out").arg(&out).args(["--set", "steps=60"]);
                Running::start(&mut as_process(command, &hosts, process))
            })
            .collect();
        assert!(processes[0].wait_for_line("step 1/60"));
        processes[interrupted].interrupt();
        let interrupted = processes.remove(interrupted).end_within(NOTICE).expect(130);
        interrupted.says(&["interrupted", "--resume"]);
        processes.remove(0).end_within(NOTICE).expect(1).one_error().says(&["another process of this run is gone"]);
        assert!((1..60).contains(&committed(&out)));
        RunDir::open(&out).unwrap().verify().unwrap();
    }
}
