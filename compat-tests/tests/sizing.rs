//! What `docs/sizing.md` says of fleets, by short simulations.

use redisson_rate_limiter::bench::sizing::{Audits, Costs, Figures, LeaseRule, Scenario, run};

const BASE_RATE: u64 = 125;

fn fleet(clients: usize, change: impl FnOnce(&mut Scenario)) -> Figures {
    let rate = BASE_RATE * clients as u64;
    let mut scenario = Scenario { clients, rate, seconds: 1, ..Scenario::default() };
    change(&mut scenario);
    run(&scenario)
}

/// A client alone: each request is a call, and takes a round trip and the script.
#[test]
fn a_single_client_pays_a_round_trip_for_each_request() {
    let figures = fleet(1, |scenario| scenario.seconds = 10);
    assert!((figures.calls / figures.requests - 1.0).abs() < 0.05, "{figures:?}");
    let costs = Costs::default();
    let expected = figures.calls * (costs.granted + costs.connection[0]) / 1e6;
    assert!((1.0..1.3).contains(&(figures.utilisation / expected)), "{figures:?}");
    assert!((520..640).contains(&figures.p50_us), "{figures:?}");
}

/// A server of one core, here a slow one, does no more than fits into a second, and clients that find
/// it busy merge their requests: all are answered.
#[test]
fn a_busy_server_makes_clients_share_calls() {
    let figures = fleet(150, |scenario| {
        scenario.audits = Audits::Never;
        scenario.costs.connection = [100.0; 3];
    });
    assert!((0.98..=1.001).contains(&figures.utilisation), "{figures:?}");
    assert!(figures.requests > 1.2 * figures.calls, "{figures:?}");
    assert!(figures.granted > 0.95 * 15_000.0, "{figures:?}");
}

/// Two hundred clients with leases: few calls, most requests answered at once.
#[test]
fn leases_take_the_load_off_the_server() {
    for lease in
        [LeaseRule::Fixed { permits: 20, hold_ms: 200 }, LeaseRule::Following { hold_ms: 200 }]
    {
        let figures = fleet(200, |scenario| {
            scenario.lease = Some(lease);
            scenario.audits = Audits::PerFleet;
        });
        assert!(figures.utilisation < 0.1 && figures.p50_us == 0, "{lease:?}: {figures:?}");
        assert!(figures.granted > 0.99 * figures.requests, "{lease:?}: {figures:?}");
    }
}

/// Audits cost the fleet the square of its size, and soon more than everything else.
#[test]
fn audits_of_each_client_grow_with_the_square_of_the_fleet() {
    let audits = [30, 60].map(|clients| {
        let figures = fleet(clients, |scenario| scenario.seconds = 2);
        figures.utilisation * figures.audits
    });
    assert!((3.0..5.0).contains(&(audits[1] / audits[0])), "{audits:?}");
}

/// The rate is a limit here as well: what is granted in the long run is no more.
#[test]
fn an_exhausted_limiter_grants_its_rate() {
    for max_wait_ms in [0, 1000] {
        let figures = fleet(10, |scenario| {
            (scenario.rate, scenario.max_wait_ms, scenario.seconds) = (500, max_wait_ms, 4);
        });
        assert!((0.99..1.01).contains(&figures.used), "{max_wait_ms}: {figures:?}");
    }
}
