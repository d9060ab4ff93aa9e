//! Users and roles that do not exist.

use gitcd::proto::authpb::permission::Type;
use gitcd::proto::authpb::{Permission, UserAddOptions};
use gitcd::proto::etcdserverpb::{
    AuthDisableRequest, AuthEnableRequest, AuthRoleAddRequest, AuthRoleDeleteRequest, AuthRoleGetRequest,
    AuthRoleGrantPermissionRequest, AuthRoleListRequest, AuthRoleRevokePermissionRequest, AuthStatusRequest,
    AuthUserAddRequest, AuthUserChangePasswordRequest, AuthUserDeleteRequest, AuthUserGetRequest,
    AuthUserGrantRoleRequest, AuthUserListRequest, AuthUserRevokeRoleRequest, AuthenticateRequest,
};
use tonic::Code;

use super::states::in_every_state;
use crate::support::{Client, same};

const NAMES: [&str; 10] = ["", "root", "a", "A", "with space", "with/slash", "\0", "ä", "*", "guest"];
const PASSWORDS: [&str; 4] = ["", "x", "a b", "\0"];

fn grant(name: &str, perm: Permission) -> AuthRoleGrantPermissionRequest {
    AuthRoleGrantPermissionRequest { name: name.into(), perm: Some(perm) }
}

/// Asserts that there are still no users and roles.
async fn nobody_is_there(client: &Client) {
    assert!(!client.auth_status(AuthStatusRequest {}).await.ok().enabled);
    assert!(client.user_list(AuthUserListRequest {}).await.ok().users.is_empty());
    assert!(client.role_list(AuthRoleListRequest {}).await.ok().roles.is_empty());
}

#[tokio::test]
async fn nobody_logs_in_under_any_name() {
    same(async |client| {
        for name in NAMES {
            for password in PASSWORDS {
                let request = AuthenticateRequest { name: name.into(), password: password.into() };
                client.authenticate(request).await.refused(Code::FailedPrecondition);
            }
        }
        nobody_is_there(&client).await;
    })
    .await;
}

#[tokio::test]
async fn authentication_is_switched_on_in_no_state() {
    same(async |client| {
        in_every_state(&client, async |client| {
            client.auth_enable(AuthEnableRequest {}).await;
            client.auth_disable(AuthDisableRequest {}).await;
            client.authenticate(AuthenticateRequest { name: "root".into(), password: "x".into() }).await;
            client.user_get(AuthUserGetRequest { name: "root".into() }).await;
            client.role_get(AuthRoleGetRequest { role: "root".into() }).await;
            nobody_is_there(client).await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn users_without_a_name_are_not_added() {
    same(async |client| {
        for password in PASSWORDS {
            for hashed_password in ["", "eA==", "no base64"] {
                for options in [None, Some(false), Some(true)] {
                    let options = options.map(|no_password| UserAddOptions { no_password });
                    let (password, hashed_password) = (password.to_owned(), hashed_password.to_owned());
                    let request = AuthUserAddRequest { name: String::new(), password, options, hashed_password };
                    client.user_add(request).await.refused(Code::InvalidArgument);
                }
            }
        }
        client.role_add(AuthRoleAddRequest { name: String::new() }).await.refused(Code::InvalidArgument);
        nobody_is_there(&client).await;
    })
    .await;
}

#[tokio::test]
async fn users_that_are_not_there_are_not_changed() {
    same(async |client| {
        for name in NAMES {
            let user = || name.to_owned();
            client.user_get(AuthUserGetRequest { name: user() }).await.refused(Code::FailedPrecondition);
            client.user_delete(AuthUserDeleteRequest { name: user() }).await.refused(Code::FailedPrecondition);
            for password in PASSWORDS {
                let password = password.to_owned();
                let request = AuthUserChangePasswordRequest { name: user(), password, ..Default::default() };
                client.user_change_password(request).await.refused(Code::FailedPrecondition);
            }
            for role in ["", "root", "a"] {
                let role = role.to_owned();
                let request = AuthUserGrantRoleRequest { user: user(), role: role.clone() };
                client.user_grant_role(request).await.refused(Code::FailedPrecondition);
                let request = AuthUserRevokeRoleRequest { name: user(), role };
                client.user_revoke_role(request).await.refused(Code::FailedPrecondition);
            }
        }
        nobody_is_there(&client).await;
    })
    .await;
}

#[tokio::test]
async fn roles_that_are_not_there_are_not_changed() {
    same(async |client| {
        for name in NAMES {
            let role = || name.to_owned();
            client.role_get(AuthRoleGetRequest { role: role() }).await.refused(Code::FailedPrecondition);
            client.role_delete(AuthRoleDeleteRequest { role: role() }).await.refused(Code::FailedPrecondition);
            for (key, range_end) in [("a", ""), ("a", "b"), ("a", "\0"), ("\0", ""), ("\0", "\0"), ("ä", "ö")] {
                let (key, range_end) = (key.to_owned(), range_end.to_owned());
                for kind in [Type::Read, Type::Write, Type::Readwrite] {
                    let perm = Permission {
                        perm_type: kind.into(),
                        key: key.clone().into(),
                        range_end: range_end.clone().into(),
                    };
                    client.role_grant_permission(grant(name, perm)).await.refused(Code::FailedPrecondition);
                }
                let request =
                    AuthRoleRevokePermissionRequest { role: role(), key: key.into(), range_end: range_end.into() };
                client.role_revoke_permission(request).await.refused(Code::FailedPrecondition);
            }
        }
        nobody_is_there(&client).await;
    })
    .await;
}

#[tokio::test]
async fn permissions_for_nothing_are_not_granted_whoever_gets_them() {
    same(async |client| {
        for name in NAMES {
            let nothing = AuthRoleGrantPermissionRequest { name: name.into(), perm: None };
            client.role_grant_permission(nothing).await.refused(Code::InvalidArgument);
            for (key, range_end) in [("", ""), ("", "b"), ("", "\0"), ("b", "a"), ("b", "b"), ("ab", "a")] {
                let perm = Permission { perm_type: 0, key: key.into(), range_end: range_end.into() };
                client.role_grant_permission(grant(name, perm)).await.refused(Code::InvalidArgument);
            }
            for (key, range_end) in [("a", ""), ("a", "b"), ("a", "\0"), ("\0", "\0")] {
                let perm = Permission { perm_type: 0, key: key.into(), range_end: range_end.into() };
                client.role_grant_permission(grant(name, perm)).await.refused(Code::FailedPrecondition);
            }
        }
        nobody_is_there(&client).await;
    })
    .await;
}
