//! Checks of quantities: requests, limits, sizes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::inject::problem::Problems;
use crate::quantity;

/// One, in billionths.
const ONE: i128 = 1_000_000_000;

const HUGE_PAGES: &str = "hugepages-";

pub(super) fn check(path: &str, resources: &ResourceRequirements, problems: &mut Problems) {
    let path = format!("{path}.resources");
    let nothing = BTreeMap::new();
    let requests = resources.requests.as_ref().unwrap_or(&nothing);
    let limits = resources.limits.as_ref().unwrap_or(&nothing);
    for (field, quantities) in [("requests", requests), ("limits", limits)] {
        for (resource, quantity) in quantities {
            resource_quantity(&format!("{path}.{field}[{resource}]"), resource, quantity, problems);
        }
    }
    for (resource, request) in requests {
        let path = format!("{path}.requests[{resource}]");
        request_and_limit(&path, resource, request, limits.get(resource), problems);
    }
    let has = |is: fn(&str) -> bool| requests.keys().chain(limits.keys()).any(|resource| is(resource));
    if has(|resource| resource.starts_with(HUGE_PAGES)) && !has(|resource| ["cpu", "memory"].contains(&resource)) {
        problems.invalid(path, "has huge pages without CPU or memory".to_owned(), "request cpu or memory, too");
    }
}

fn resource_quantity(path: &str, resource: &str, quantity: &Quantity, problems: &mut Problems) {
    if !is_standard(resource) && !is_extended(resource) {
        let remedy = "use cpu, memory, ephemeral-storage, hugepages-<size>, or a name with a domain";
        problems.invalid(path.to_owned(), "has an unknown resource".to_owned(), remedy);
    }
    let Some(amount) = amount(path, quantity, problems) else { return };
    let unit = match resource.strip_prefix(HUGE_PAGES) {
        Some(size) => quantity::nanos(size).unwrap_or(ONE),
        // Devices are whole.
        None if is_extended(resource) => ONE,
        // An apiserver rounds the rest.
        None => ONE / 1000,
    };
    if unit <= 0 || amount % unit != 0 {
        problems.invalid(
            path.to_owned(),
            format!("is {:?}", quantity.0),
            "use a multiple of the smallest unit: 1m, a device, a page",
        );
    }
}

/// Kubernetes gives a container the limit if it has no request. Pages and devices are never given to two containers.
fn request_and_limit(
    path: &str,
    resource: &str,
    request: &Quantity,
    limit: Option<&Quantity>,
    problems: &mut Problems,
) {
    let is_exclusive = is_extended(resource) || resource.starts_with(HUGE_PAGES);
    match limit {
        Some(limit) => {
            let (Some(requested), Some(limited)) = (quantity::nanos(&request.0), quantity::nanos(&limit.0)) else {
                return;
            };
            if requested > limited {
                let found = format!("is {:?}, above the limit {:?}", request.0, limit.0);
                problems.invalid(path.to_owned(), found, "lower it, or raise the limit");
            } else if is_exclusive && requested != limited {
                let found = format!("is {:?}, but the limit is {:?}", request.0, limit.0);
                problems.invalid(path.to_owned(), found, "set both to the same quantity");
            }
        }
        None if is_exclusive => problems.invalid(path.to_owned(), "has no limit".to_owned(), "set the limit instead"),
        None => {}
    }
}

/// Returns the amount in billionths; `None` if it is invalid, which is reported.
pub(super) fn amount(path: &str, quantity: &Quantity, problems: &mut Problems) -> Option<i128> {
    let amount = quantity::nanos(&quantity.0);
    match amount {
        None => {
            let remedy = "use a number with a suffix like m, k, M, Ki, Mi, Gi";
            problems.invalid(path.to_owned(), format!("is {:?}, which is not a quantity", quantity.0), remedy);
        }
        Some(..0) => problems.invalid(path.to_owned(), format!("is {:?}", quantity.0), "use zero or more"),
        Some(_) => {}
    }
    amount.filter(|amount| *amount >= 0)
}

/// Checks the unit of a variable with a resource.
pub(super) fn divisor(path: &str, resource: &str, divisor: &Quantity, problems: &mut Problems) {
    const CPU: &[&str] = &["1m", "1"];
    const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let allowed = if resource == "cpu" { CPU } else { BYTES };
    // An apiserver compares texts after it has changed the prefix within a notation: 1024Ki to 1Mi, but not 1024 to 1Ki.
    let is_binary = |text: &str| text.ends_with('i');
    let has_exponent = divisor.0.trim_end_matches('E').contains(['e', 'E']);
    let is = |unit: &&str| is_binary(unit) == is_binary(&divisor.0) && quantity::is_same(unit, &divisor.0);
    if has_exponent || !allowed.iter().any(is) {
        let remedy = format!("use one of {}", allowed.join(", "));
        problems.invalid(path.to_owned(), format!("is {:?}", divisor.0), remedy);
    }
}

/// Returns whether it is a resource that every node has.
pub(super) fn is_standard(resource: &str) -> bool {
    ["cpu", "memory", "ephemeral-storage"].contains(&resource) || resource.starts_with(HUGE_PAGES)
}

/// Returns whether a device plugin provides it.
fn is_extended(resource: &str) -> bool {
    resource.split_once('/').is_some_and(|(domain, name)| !domain.is_empty() && !name.is_empty())
}
