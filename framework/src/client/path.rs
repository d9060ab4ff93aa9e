//! Paths of the apiserver, without names.

/// Replaces names in a path with `{namespace}` and `{name}`, so that there are as many results as kinds, not as objects.
///
/// Groups, versions, resources and subresources stay. What follows `proxy` is the path of another server, and becomes
/// `{path}`; so does the rest of any other path that has several parts.
pub(super) fn template(path: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (prefix, rest) = match parts[..] {
        ["api", _, ..] => parts.split_at(2),
        ["apis", _, _, ..] => parts.split_at(3),
        ["apis" | "api", ..] => return format!("/{}", parts.join("/")),
        [] => return "/".to_owned(),
        [only] => return format!("/{only}"),
        [first, ..] => return format!("/{first}/{{path}}"),
    };
    let mut template = format!("/{}", prefix.join("/"));
    let mut add = |part: &str| {
        template.push('/');
        template.push_str(part);
    };
    let rest = match rest {
        // A namespace is an object too, and these are its subresources.
        ["namespaces", _, rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => {
            add("namespaces");
            add("{namespace}");
            rest
        }
        rest => rest,
    };
    for (index, part) in rest.iter().enumerate() {
        match index {
            1 => add("{name}"),
            3.. if rest[2] == "proxy" => {
                add("{path}");
                break;
            }
            _ => add(part),
        }
    }
    template
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out_and_everything_else_stays() {
        for (path, expected) in [
            ("/api/v1/namespaces/plant/configmaps/a", "/api/v1/namespaces/{namespace}/configmaps/{name}"),
            ("/api/v1/namespaces/plant/configmaps", "/api/v1/namespaces/{namespace}/configmaps"),
            ("/api/v1/namespaces/plant", "/api/v1/namespaces/{name}"),
            ("/api/v1/namespaces/plant/finalize", "/api/v1/namespaces/{name}/finalize"),
            ("/api/v1/namespaces", "/api/v1/namespaces"),
            ("/api/v1/nodes/a/status", "/api/v1/nodes/{name}/status"),
            ("/apis/x.test/v1/tanks", "/apis/x.test/v1/tanks"),
            ("/apis/x.test/v1/namespaces/p/tanks/a/scale", "/apis/x.test/v1/namespaces/{namespace}/tanks/{name}/scale"),
            (
                "/api/v1/namespaces/p/pods/a/proxy/secret/path",
                "/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path}",
            ),
            ("/apis/x.test/v1", "/apis/x.test/v1"),
            ("/apis/x.test", "/apis/x.test"),
            ("/api", "/api"),
            ("/", "/"),
            ("/version", "/version"),
            ("/openapi/v3/apis/x.test/v1", "/openapi/{path}"),
            ("/readyz/etcd", "/readyz/{path}"),
        ] {
            assert_eq!(template(path), expected, "{path}");
        }
    }
}
