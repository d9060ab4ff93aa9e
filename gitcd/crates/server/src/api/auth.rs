//! The Auth service, which answers that users and roles are not supported (etcd: `api/v3rpc/auth.go`).
//!
//! Access is controlled by TLS client certificates (`--tls-trusted-ca-certs`).

use tonic::{Request, Response, Status};

use super::{Backend, status};
use crate::proto::authpb;
use crate::proto::etcdserverpb as pb;
use crate::proto::etcdserverpb::auth_server::Auth;

/// etcd's auth revision before any change of users and roles.
const AUTH_REVISION: u64 = 1;

/// Whether the permission's range is not empty (etcd: `auth/range_perm_cache.go`, `isValidPermissionRange`).
fn is_range(permission: &authpb::Permission) -> bool {
    let (key, end) = (&permission.key, &permission.range_end);
    !key.is_empty() && (end.is_empty() || key < end || **end == *b"\0")
}

macro_rules! auth_without_users {
    ($($method:ident($request:ident) -> $response:ident = $refusal:ident;)*) => {
        #[tonic::async_trait]
        impl Auth for Backend {
            async fn auth_status(
                &self,
                _: Request<pb::AuthStatusRequest>,
            ) -> Result<Response<pb::AuthStatusResponse>, Status> {
                let header = Some(self.header(self.store.revision()));
                Ok(Response::new(pb::AuthStatusResponse { header, enabled: false, auth_revision: AUTH_REVISION }))
            }

            async fn auth_disable(
                &self,
                _: Request<pb::AuthDisableRequest>,
            ) -> Result<Response<pb::AuthDisableResponse>, Status> {
                // Already disabled, which is a success, as in etcd.
                Ok(Response::new(pb::AuthDisableResponse { header: Some(self.header(self.store.revision())) }))
            }

            async fn user_add(
                &self,
                request: Request<pb::AuthUserAddRequest>,
            ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
                Err(if request.get_ref().name.is_empty() { status::user_empty() } else { status::no_users() })
            }

            async fn user_list(
                &self,
                _: Request<pb::AuthUserListRequest>,
            ) -> Result<Response<pb::AuthUserListResponse>, Status> {
                let header = Some(self.header(self.store.revision()));
                Ok(Response::new(pb::AuthUserListResponse { header, users: Vec::new() }))
            }

            async fn role_add(
                &self,
                request: Request<pb::AuthRoleAddRequest>,
            ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
                Err(if request.get_ref().name.is_empty() { status::role_empty() } else { status::no_users() })
            }

            async fn role_list(
                &self,
                _: Request<pb::AuthRoleListRequest>,
            ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
                let header = Some(self.header(self.store.revision()));
                Ok(Response::new(pb::AuthRoleListResponse { header, roles: Vec::new() }))
            }

            async fn role_grant_permission(
                &self,
                request: Request<pb::AuthRoleGrantPermissionRequest>,
            ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
                Err(match &request.get_ref().perm {
                    None => status::permission_not_given(),
                    Some(permission) if !is_range(permission) => status::invalid_auth_management(),
                    Some(_) => status::role_not_found(),
                })
            }

            $(async fn $method(&self, _: Request<pb::$request>) -> Result<Response<pb::$response>, Status> {
                Err(status::$refusal())
            })*
        }
    };
}

auth_without_users! {
    auth_enable(AuthEnableRequest) -> AuthEnableResponse = root_user_not_found;
    authenticate(AuthenticateRequest) -> AuthenticateResponse = auth_not_enabled;
    user_get(AuthUserGetRequest) -> AuthUserGetResponse = user_not_found;
    user_delete(AuthUserDeleteRequest) -> AuthUserDeleteResponse = user_not_found;
    user_change_password(AuthUserChangePasswordRequest) -> AuthUserChangePasswordResponse = user_not_found;
    user_grant_role(AuthUserGrantRoleRequest) -> AuthUserGrantRoleResponse = user_not_found;
    user_revoke_role(AuthUserRevokeRoleRequest) -> AuthUserRevokeRoleResponse = user_not_found;
    role_get(AuthRoleGetRequest) -> AuthRoleGetResponse = role_not_found;
    role_delete(AuthRoleDeleteRequest) -> AuthRoleDeleteResponse = role_not_found;
    role_revoke_permission(AuthRoleRevokePermissionRequest) -> AuthRoleRevokePermissionResponse = role_not_found;
}
