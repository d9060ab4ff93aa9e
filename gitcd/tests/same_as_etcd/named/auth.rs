//! The Auth service of a server without users.

use gitcd::proto::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGetRequest,
    AuthRoleListRequest, AuthStatusRequest, AuthUserAddRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserListRequest, AuthenticateRequest,
};
use tonic::Code;

use super::states::in_every_state;
use crate::support::same;

#[tokio::test]
async fn the_status_of_authentication_in_every_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            assert!(!client.auth_status(AuthStatusRequest {}).await.ok().enabled);
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn nothing_that_is_refused_changes_the_status() {
    same(async |client| {
        client.auth_enable(AuthEnableRequest {}).await.refused(Code::FailedPrecondition);
        client.auth_status(AuthStatusRequest {}).await.ok();
        client.auth_disable(AuthDisableRequest {}).await.ok();
        client.auth_status(AuthStatusRequest {}).await.ok();
        assert!(client.user_list(AuthUserListRequest {}).await.ok().users.is_empty());
        assert!(client.role_list(AuthRoleListRequest {}).await.ok().roles.is_empty());
        for name in ["", "root", "a"] {
            let name = name.to_owned();
            let log_in = AuthenticateRequest { name: name.clone(), password: "x".into() };
            client.authenticate(log_in).await.refused(Code::FailedPrecondition);
            client.user_get(AuthUserGetRequest { name: name.clone() }).await.refused(Code::FailedPrecondition);
            client.user_delete(AuthUserDeleteRequest { name: name.clone() }).await.refused(Code::FailedPrecondition);
            client.role_get(AuthRoleGetRequest { role: name.clone() }).await;
            client.role_delete(AuthRoleDeleteRequest { role: name }).await.refused(Code::FailedPrecondition);
            client.auth_status(AuthStatusRequest {}).await.ok();
        }
        client.user_add(AuthUserAddRequest::default()).await.refused(Code::InvalidArgument);
        client.role_add(AuthRoleAddRequest::default()).await.refused(Code::InvalidArgument);
        client.auth_status(AuthStatusRequest {}).await.ok();
    })
    .await;
}
