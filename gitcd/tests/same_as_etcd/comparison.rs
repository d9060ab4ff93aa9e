//! The comparison itself: it must detect differences.

use gitcd::proto::etcdserverpb::{PutResponse, ResponseHeader};
use tonic::Status;

use crate::support::Transcript;

fn transcript(answers: &[Result<PutResponse, Status>]) -> Transcript {
    let mut transcript = Transcript::default();
    for answer in answers {
        transcript.answer(&"put", answer);
    }
    transcript
}

fn written(revision: i64, member_id: u64) -> PutResponse {
    let header = ResponseHeader { revision, member_id, ..ResponseHeader::default() };
    PutResponse { header: Some(header), prev_kv: None }
}

#[test]
fn identities_may_differ_but_not_be_left_out() {
    let etcd = transcript(&[Ok(written(2, 17))]);
    assert_eq!(Transcript::difference(&etcd, &transcript(&[Ok(written(2, 99))])), None);
    assert!(Transcript::difference(&etcd, &transcript(&[Ok(written(2, 0))])).is_some());
}

#[test]
fn revisions_codes_and_messages_may_not_differ_and_nothing_may_be_missing() {
    let refused = |status: Status| transcript(&[Ok(written(2, 1)), Err(status)]);
    let etcd = refused(Status::not_found("etcdserver: requested lease not found"));
    for other in [
        refused(Status::not_found("lease not found")),
        refused(Status::unknown("etcdserver: requested lease not found")),
        transcript(&[Ok(written(2, 1)), Ok(written(3, 1))]),
        transcript(&[Ok(written(2, 1))]),
        transcript(&[]),
    ] {
        let difference = Transcript::difference(&etcd, &other).expect("the transcripts differ");
        assert!(difference.contains("differs"), "{difference}");
    }
}
