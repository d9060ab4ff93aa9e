//! The Auth service of a server without authentication.

use gitcd::proto::etcdserverpb::{
    AuthDisableRequest, AuthRoleDeleteRequest, AuthRoleGetRequest, AuthStatusRequest, AuthUserDeleteRequest,
    AuthUserGetRequest, AuthenticateRequest,
};
use tonic::Code;

use crate::support::same;

#[tokio::test]
async fn authentication_is_off_and_can_be_switched_off_again() {
    same(async |client| {
        assert!(!client.auth_status(AuthStatusRequest {}).await.ok().enabled);
        client.auth_disable(AuthDisableRequest {}).await.ok();
        client.auth_status(AuthStatusRequest {}).await.ok();
    })
    .await;
}

#[tokio::test]
async fn nobody_can_log_in() {
    same(async |client| {
        let request = AuthenticateRequest { name: "root".into(), password: "x".into() };
        client.authenticate(request).await.refused(Code::FailedPrecondition);
    })
    .await;
}

#[tokio::test]
async fn there_are_no_users_and_no_roles() {
    same(async |client| {
        client.user_get(AuthUserGetRequest { name: "a".into() }).await.refused(Code::FailedPrecondition);
        client.user_delete(AuthUserDeleteRequest { name: "a".into() }).await.refused(Code::FailedPrecondition);
        client.role_get(AuthRoleGetRequest { role: "a".into() }).await.refused(Code::FailedPrecondition);
        client.role_delete(AuthRoleDeleteRequest { role: "a".into() }).await.refused(Code::FailedPrecondition);
    })
    .await;
}
