use proptest::prelude::*;

use super::*;

const US: &str = "us";

fn timing() -> Timing {
    Timing::default()
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn record(holder: &str, lease_seconds: u64, renewed: i64, transitions: i32) -> Record {
    Record {
        holder: holder.into(),
        lease: Duration::from_secs(lease_seconds),
        acquired: Some(wall(0)),
        renewed: Some(wall(renewed)),
        transitions,
    }
}

fn after(start: Instant, milliseconds: u64) -> Instant {
    start + Duration::from_millis(milliseconds)
}

#[test]
fn times_must_go_together() {
    let seconds = Duration::from_secs;
    let with = |lease, renew_deadline, retry| Timing { lease, renew_deadline, retry }.check();
    assert_eq!(timing().check(), Ok(timing()));
    assert!(with(seconds(15), seconds(15), seconds(2)).is_err(), "deadline as long as the lease");
    assert!(with(seconds(15), Duration::from_millis(14_999), seconds(2)).is_ok());
    assert!(with(seconds(15), seconds(12), seconds(10)).is_err(), "1.2 times the period is the deadline");
    assert!(with(seconds(15), Duration::from_millis(12_001), seconds(10)).is_ok());
    assert!(with(seconds(15), seconds(10), Duration::ZERO).is_err());
    assert!(
        with(Duration::from_millis(1500), seconds(1), Duration::from_millis(100)).is_err(),
        "half a second"
    );
    assert!(with(Duration::ZERO, Duration::ZERO, Duration::ZERO).is_err());
}

#[test]
fn a_lease_is_created_taken_and_renewed() {
    let start = Instant::now();
    let decide_on = |record| decide(&Observation { record, since: start }, US, timing(), start, wall(5));
    let ours = |acquired, transitions| Record {
        holder: US.into(),
        lease: Duration::from_secs(15),
        acquired: Some(wall(acquired)),
        renewed: Some(wall(5)),
        transitions,
    };
    assert_eq!(decide_on(None), Action::Create(ours(5, 0)));
    // Given back: taken at once, and it has changed hands.
    assert_eq!(decide_on(Some(record("", 1, 0, 3))), Action::Take(ours(5, 4)));
    // Ours: the time of taking and the count stay.
    assert_eq!(decide_on(Some(record(US, 15, 0, 3))), Action::Renew(ours(0, 3)));
    assert_eq!(decide_on(Some(record("other", 15, 0, 3))), Action::Wait);
    // The count cannot run over.
    assert_eq!(decide_on(Some(record("", 1, 0, i32::MAX))), Action::Take(ours(5, i32::MAX)));
}

#[test]
fn a_lease_runs_out_by_our_clock_only() {
    let start = Instant::now();
    // Written as if it were from long ago, and as if from the future: neither matters.
    for renewed in [-100_000, 100_000] {
        let observed = Observation { record: Some(record("other", 15, renewed, 0)), since: start };
        let at = |milliseconds| decide(&observed, US, timing(), after(start, milliseconds), wall(0));
        assert_eq!(at(0), Action::Wait);
        assert_eq!(at(14_999), Action::Wait);
        assert!(matches!(at(15_000), Action::Take(_)));
    }
}

#[test]
fn the_lease_s_own_duration_counts() {
    let start = Instant::now();
    let observed = Observation { record: Some(record("other", 60, 0, 0)), since: start };
    assert_eq!(decide(&observed, US, timing(), after(start, 59_999), wall(0)), Action::Wait);
    assert!(matches!(decide(&observed, US, timing(), after(start, 60_000), wall(0)), Action::Take(_)));
}

#[test]
fn any_change_of_the_record_starts_the_time_anew() {
    let start = Instant::now();
    let mut observed = Observation { record: None, since: start };
    observed.update(Some(record("other", 15, 0, 0)), start);
    observed.update(Some(record("other", 15, 0, 0)), after(start, 10_000));
    assert_eq!(observed.since, start, "unchanged");
    observed.update(Some(record("other", 15, 2, 0)), after(start, 12_000));
    assert_eq!(decide(&observed, US, timing(), after(start, 26_999), wall(0)), Action::Wait);
    assert!(matches!(decide(&observed, US, timing(), after(start, 27_000), wall(0)), Action::Take(_)));
}

#[test]
fn a_lease_that_is_given_back_is_free() {
    let given = released(&record(US, 15, 9, 7), wall(10));
    assert_eq!((given.holder.as_str(), given.lease, given.transitions), ("", Duration::from_secs(1), 7));
    let start = Instant::now();
    let observed = Observation { record: Some(given), since: start };
    assert!(
        matches!(decide(&observed, "other", timing(), start, wall(10)), Action::Take(record) if record.transitions == 8)
    );
}

#[test]
fn records_are_read_and_written() {
    let mut spec = LeaseSpec { strategy: Some("kept".into()), ..LeaseSpec::default() };
    let written = record("other", 15, 4, 2);
    written.write(&mut spec);
    assert_eq!(Record::of(Some(&spec)), written);
    assert_eq!(spec.strategy.as_deref(), Some("kept"));
    let empty = Record {
        holder: String::new(),
        lease: Duration::ZERO,
        acquired: None,
        renewed: None,
        transitions: 0,
    };
    assert_eq!(Record::of(None), empty);
    let negative = LeaseSpec { lease_duration_seconds: Some(-1), ..LeaseSpec::default() };
    assert_eq!(Record::of(Some(&negative)), empty);
}

proptest! {
    /// Two candidates with clocks that run alike but show different times, and a lease only one can write at a time:
    /// never do both believe to lead. A leader that cannot renew stops believing at its deadline.
    #[test]
    fn never_two_leaders(
        steps in proptest::collection::vec((0usize..2, 1u64..4_000, proptest::bool::weighted(0.7)), 1..200),
        skew in -1_000_000i64..1_000_000,
    ) {
        let start = Instant::now();
        let names = ["a", "b"];
        let mut stored: Option<Record> = None;
        let mut observed = [Observation { record: None, since: start }, Observation { record: None, since: start }];
        let mut believes: [Option<Instant>; 2] = [None, None];
        let mut now = start;
        for (candidate, milliseconds, reaches_the_server) in steps {
            now += Duration::from_millis(milliseconds);
            if reaches_the_server {
                observed[candidate].update(stored.clone(), now);
                let shown = wall(if candidate == 0 { 0 } else { skew } + (now - start).as_secs() as i64);
                match decide(&observed[candidate], names[candidate], timing(), now, shown) {
                    Action::Wait => believes[candidate] = None,
                    Action::Create(record) | Action::Take(record) | Action::Renew(record) => {
                        stored = Some(record.clone());
                        observed[candidate].update(Some(record), now);
                        believes[candidate] = Some(now);
                    }
                }
            }
            let leads = |renewed: Option<Instant>| {
                renewed.is_some_and(|renewed| now - renewed < timing().renew_deadline)
            };
            prop_assert!(!(leads(believes[0]) && leads(believes[1])));
        }
    }
}
