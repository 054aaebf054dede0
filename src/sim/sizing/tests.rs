//! What `docs/sizing.md` says of fleets, by short simulations.

use super::{Figures, LeaseRule, Scenario, ServerCosts, run};

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
    let costs = ServerCosts::default();
    let expected = figures.calls * (costs.granted + costs.connection[0]) / 1e6;
    assert!((1.0..1.3).contains(&(figures.utilisation / expected)), "{figures:?}");
    assert!((520..640).contains(&figures.p50_us), "{figures:?}");
}

/// A server of one core, here a slow one, does no more than fits into a second, and clients that find
/// it busy merge their requests: all are answered.
#[test]
fn a_busy_server_makes_clients_share_calls() {
    let figures = fleet(150, |scenario| {
        scenario.costs.connection = [100.0; 3];
    });
    assert!((0.98..=1.001).contains(&figures.utilisation), "{figures:?}");
    assert!(figures.requests > 1.2 * figures.calls, "{figures:?}");
    assert!(figures.granted > 0.95 * 15_000.0, "{figures:?}");
}

/// Two hundred clients with leases: few calls, most requests answered at once. Those that size
/// themselves need fewer calls, also if a tenth of the clients makes nine tenths of the requests.
#[test]
fn leases_take_the_load_off_the_server() {
    let leases =
        [LeaseRule::Fixed { permits: 20, hold_ms: 200 }, LeaseRule::Adaptive { hold_ms: 200 }];
    for uneven in [false, true] {
        let [fixed, adaptive] = leases.map(|lease| {
            fleet(200, |scenario| (scenario.lease, scenario.uneven) = (Some(lease), uneven))
        });
        assert!(adaptive.calls < 0.8 * fixed.calls, "{fixed:?} {adaptive:?}");
        assert!(adaptive.low_share > 0.9 && adaptive.used > 0.95 * fixed.used, "{adaptive:?}");
        for figures in [fixed, adaptive] {
            assert!(figures.utilisation < 0.12 && figures.p50_us == 0, "{figures:?}");
            assert!(figures.granted > 0.96 * figures.requests, "{figures:?}");
        }
    }
}

/// A thousand of them leave more than half of a server free.
#[test]
#[ignore = "long"]
fn a_thousand_adaptive_clients_need_less_than_half_a_server() {
    let leased =
        |lease| fleet(1000, |scenario| (scenario.lease, scenario.seconds) = (Some(lease), 3));
    let fixed = leased(LeaseRule::Fixed { permits: 20, hold_ms: 200 });
    let adaptive = leased(LeaseRule::Adaptive { hold_ms: 200 });
    assert!(adaptive.utilisation < 0.5 && adaptive.p50_us == 0, "{adaptive:?}");
    assert!(adaptive.low_share > 0.9 && adaptive.used > 0.95 * fixed.used, "{adaptive:?}");
}

/// At an exhausted limiter they grow small, and are held for a short time: all of the rate is used.
#[test]
fn adaptive_leases_give_way_at_an_exhausted_limiter() {
    let figures = fleet(50, |scenario| {
        (scenario.rate, scenario.denial_memory, scenario.seconds) = (2500, true, 3);
        scenario.lease = Some(LeaseRule::Adaptive { hold_ms: 200 });
    });
    assert!((0.98..1.02).contains(&figures.used) && figures.low_share > 0.8, "{figures:?}");
}

/// What audits read grows with the calls, and not with the square of the fleet: about four times what
/// the fleet writes. A client alone makes one a second.
#[test]
fn a_fleet_audits_a_few_times_a_second() {
    let alone = fleet(1, |scenario| scenario.seconds = 10);
    assert!((0.8..=1.2).contains(&alone.audits), "{alone:?}");
    for clients in [30, 150] {
        let figures = fleet(clients, |scenario| scenario.seconds = 3);
        assert!((1.5..=8.0).contains(&figures.audits), "{clients}: {figures:?}");
        let us_per_call = figures.utilisation * figures.auditing * 1e6 / figures.calls;
        assert!(
            us_per_call < 8.0 * ServerCosts::default().entry,
            "{clients}: {us_per_call} µs a call"
        );
    }
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
