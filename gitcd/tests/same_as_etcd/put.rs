//! Put.

use gitcd::proto::etcdserverpb::PutRequest;
use tonic::Code;

use crate::support::build::{delete, get, grant, put};
use crate::support::same;

#[tokio::test]
async fn the_first_write_gets_revision_two() {
    same(async |client| {
        assert_eq!(client.range(get("/registry/a")).await.ok().header.unwrap().revision, 1);
        assert_eq!(client.put(put("/registry/a", "1")).await.ok().header.unwrap().revision, 2);
        client.range(get("/registry/a")).await;
    })
    .await;
}

#[tokio::test]
async fn versions_count_from_one_and_start_anew_after_a_delete() {
    same(async |client| {
        for value in ["1", "2", "2", ""] {
            client.put(put("/registry/a", value)).await;
            client.range(get("/registry/a")).await;
        }
        client.delete_range(delete("/registry/a")).await;
        client.range(get("/registry/a")).await;
        client.put(put("/registry/a", "3")).await;
        let answer = client.range(get("/registry/a")).await.ok();
        assert_eq!(answer.kvs[0].version, 1);
        assert_eq!(answer.kvs[0].create_revision, 7);
    })
    .await;
}

#[tokio::test]
async fn the_previous_pair_comes_back_when_asked_for() {
    same(async |client| {
        let and_previous = |value| PutRequest { prev_kv: true, ..put("/registry/a", value) };
        assert!(client.put(and_previous("1")).await.ok().prev_kv.is_none());
        assert!(client.put(and_previous("2")).await.ok().prev_kv.is_some());
        assert!(client.put(put("/registry/a", "3")).await.ok().prev_kv.is_none());
        client.delete_range(delete("/registry/a")).await;
        assert!(client.put(and_previous("4")).await.ok().prev_kv.is_none());
    })
    .await;
}

#[tokio::test]
async fn ignore_value_keeps_the_value_and_needs_a_key() {
    same(async |client| {
        let touch = PutRequest { ignore_value: true, prev_kv: true, ..put("/registry/a", "") };
        client.put(touch.clone()).await.refused(Code::InvalidArgument);
        client.range(get("/registry/a")).await;
        client.put(put("/registry/a", "1")).await;
        client.put(touch.clone()).await.ok();
        assert_eq!(client.range(get("/registry/a")).await.ok().kvs[0].version, 2);
        client.delete_range(delete("/registry/a")).await;
        client.put(touch).await.refused(Code::InvalidArgument);
        let contradiction = PutRequest { ignore_value: true, ..put("/registry/a", "2") };
        client.put(contradiction).await.refused(Code::InvalidArgument);
        client.range(get("/registry/a")).await;
    })
    .await;
}

#[tokio::test]
async fn ignore_lease_keeps_the_lease_and_needs_a_key() {
    same(async |client| {
        client.lease_grant(grant(7, 600)).await.ok();
        let leased = PutRequest { lease: 7, ..put("/registry/a", "1") };
        let keep = |value| PutRequest { ignore_lease: true, ..put("/registry/a", value) };
        client.put(keep("0")).await.refused(Code::InvalidArgument);
        client.put(leased.clone()).await.ok();
        client.put(keep("2")).await.ok();
        assert_eq!(client.range(get("/registry/a")).await.ok().kvs[0].lease, 7);
        let both = PutRequest { ignore_value: true, ..keep("") };
        client.put(both).await.ok();
        client.range(get("/registry/a")).await;
        let contradiction = PutRequest { ignore_lease: true, ..leased };
        client.put(contradiction).await.refused(Code::InvalidArgument);
        client.put(put("/registry/a", "3")).await.ok();
        assert_eq!(client.range(get("/registry/a")).await.ok().kvs[0].lease, 0);
    })
    .await;
}

#[tokio::test]
async fn a_put_with_an_unknown_lease_changes_nothing() {
    same(async |client| {
        let leased = PutRequest { lease: 404, ..put("/registry/a", "1") };
        client.put(leased).await.refused(Code::NotFound);
        let negative = PutRequest { lease: -1, ..put("/registry/a", "1") };
        client.put(negative).await;
        client.range(get("/registry/a")).await;
        client.put(put("/registry/a", "1")).await;
    })
    .await;
}

#[tokio::test]
async fn an_empty_key_is_refused() {
    same(async |client| {
        client.put(put("", "1")).await.refused(Code::InvalidArgument);
        client.range(get("")).await.refused(Code::InvalidArgument);
        client.delete_range(delete("")).await.refused(Code::InvalidArgument);
    })
    .await;
}

#[tokio::test]
async fn any_bytes_are_keys_and_values() {
    same(async |client| {
        let keys: [&[u8]; 14] = [
            b"\0",
            b"\0\0",
            b"/",
            b"//",
            b"/registry",
            b"/registry/",
            b"/registry//",
            b"/registry/a",
            b"/registry/a/b",
            b"/registry/.git/../x",
            b"/registry/%41 \\ \"",
            b"/registry/\xff\xfe",
            b"compact_rev_key",
            b"\xff\xff",
        ];
        let values: [&[u8]; 6] = [b"", b"\0", b"{\"a\":1}", b"{\"a\":1}\n", b"{ \"a\": 1 }", b"k8s\0\x0a\xff"];
        let request = |key: &'static [u8], value: &'static [u8]| PutRequest {
            key: key.into(),
            value: value.into(),
            ..PutRequest::default()
        };
        for (key, value) in keys.into_iter().zip(values.into_iter().cycle()) {
            client.put(request(key, value)).await.ok();
        }
        for value in values {
            client.put(request(b"/registry/a", value)).await.ok();
            client.range(get("/registry/a")).await.ok();
        }
        let everything = gitcd::proto::etcdserverpb::RangeRequest { range_end: b"\0".as_slice().into(), ..get("\0") };
        assert_eq!(client.range(everything).await.ok().count, 14);
    })
    .await;
}
