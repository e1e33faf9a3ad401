//! A process without `mpirun` is a group of one; `ci/mpi` tests groups of several.
#![allow(missing_docs, reason = "a test program")]

use std::time::Duration;

use gradchain::collective::{Collective, average, gather};
use gradchain::prelude::*;
use gradchain::wrapper::sharded;

#[test]
fn one_process_is_a_group() {
    let world = gradchain_mpi::world(Duration::from_secs(60)).unwrap();
    assert_eq!((world.rank(), world.size()), (0, 1));
    let mut received = Vec::new();
    // Includes empty messages.
    for bytes in [0, 1, 70_000] {
        let mut send: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
        let sent = send.clone();
        world.all_to_all(&mut send, &[bytes], &mut received, &[bytes]).unwrap();
        assert!(received == sent && send == sent);
        world.all_gather(&mut send, &mut received, &[bytes]).unwrap();
        assert!(received == sent && send == sent);
        assert_eq!(gather(&world, &sent).unwrap(), [sent]);
    }
    // Of several calls in flight.
    let [first, dropped, last] = [1, 2, 3].map(|n| world.begin_all_gather(vec![n; 3], Vec::new(), &[3]));
    drop(dropped);
    assert_eq!(first.wait().unwrap(), [[1; 3], [1; 3]]);
    assert_eq!(last.wait().unwrap(), [[3; 3], [3; 3]]);
    world.barrier().unwrap();
    let error = world.all_gather(&mut vec![1], &mut received, &[1, 1]).unwrap_err();
    assert!(error.is_argument(), "{error}");
    assert!(world.begin_all_to_all(vec![1], &[2], Vec::new(), &[1]).wait().unwrap_err().is_argument());
    let again = gradchain_mpi::world(Duration::from_secs(60)).unwrap_err();
    assert_eq!(again.to_string(), "rank 0: MPI is already initialized in this process");

    let mut params = (vec![1.0_f32, -2.0], 0.5_f64);
    average(&world, &mut params).unwrap();
    assert_eq!(params, (vec![1.0, -2.0], 0.5));
    let (plain, optimizer) = (adamw(0.1), sharded(adamw(0.1), world));
    let mut other = params.clone();
    let (mut state, mut theirs) = (optimizer.init(&params).unwrap(), plain.init(&other).unwrap());
    let gradient = (vec![3.0_f32, -0.5], 2.0_f64);
    optimizer.step(&mut params, &gradient, &mut state).unwrap();
    plain.step(&mut other, &gradient, &mut theirs).unwrap();
    assert_eq!(params, other);
}
