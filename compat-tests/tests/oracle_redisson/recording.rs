//! The commands of a real Redisson can be explained, for every release.

use compat_tests::oracle::campaign::releases;
use compat_tests::oracle::layout::{Role, Word};
use compat_tests::oracle::lockstep::number;
use compat_tests::oracle::ops::{ErrorKind, Mode, Shape};
use compat_tests::oracle::record::{Answered, Edge, Recording, recording};

fn since(recording: &Recording, release: &str) -> bool {
    number(&recording.release) >= number(release)
}

/// The length of the ids in the log.
fn id_length(recording: &Recording) -> Option<usize> {
    let words = recording.templates[&Shape::TryAcquire].iter().flat_map(|t| &t.words);
    words.clone().find_map(|word| match word {
        Word::Slot(Role::EntryId(length)) => Some(*length),
        _ => None,
    })
}

#[tokio::test]
async fn every_release_is_explained() {
    for release in releases() {
        let recording = recording(&release).await;
        let has = |shape| recording.templates.contains_key(&shape);
        assert_eq!(has(Shape::Release), since(&recording, "3.52.0"), "{release}");
        let update = Shape::UpdateRate(Mode::PerClient, true, true);
        assert_eq!(has(update), since(&recording, "4.4.0"), "{release}");
        let keep_alive = Shape::TrySetRate(Mode::Overall, true);
        assert_eq!(has(keep_alive), since(&recording, "3.37.0"), "{release}");
        for shape in [Shape::TryAcquire, Shape::Delete, Shape::Rename] {
            assert!(has(shape), "{release}: {shape:?}");
        }
        let length = if since(&recording, "3.21.0") { 16 } else { 8 };
        assert_eq!(id_length(&recording), Some(length), "{release}");

        let refused = Some(&Answered::Refused(ErrorKind::InvalidArgument));
        let short = |shape| recording.edges.get(&(shape, Edge::ShortKeepAlive));
        if has(keep_alive) {
            assert_eq!(short(keep_alive), refused, "{release}");
            let set_rate = short(Shape::SetRate(Mode::Overall, true));
            assert_eq!(set_rate == refused, since(&recording, "3.46.0"), "{release}");
        }
        if has(Shape::Release) {
            let edge = |edge| recording.edges.get(&(Shape::Release, edge));
            assert_eq!(edge(Edge::Negative), refused, "{release}");
            assert_eq!(edge(Edge::Zero), Some(&Answered::Ignored), "{release}");
        }
    }
}
