//! The start order.

use super::StartError;
use crate::plane::components::Component;

/// Returns for each component the indices of those before it, if that order is possible.
pub(super) fn order(components: &[Component]) -> Result<Vec<Vec<usize>>, StartError> {
    let wrong = |of: &Component, after: &str| StartError::Order { component: of.name.clone(), after: after.to_owned() };
    let mut orders: Vec<Vec<usize>> = Vec::new();
    for component in components {
        let find = |name: &String| {
            let found = components.iter().position(|other| other.name == *name);
            found.ok_or_else(|| wrong(component, name))
        };
        orders.push(component.after.iter().map(find).collect::<Result<_, _>>()?);
    }
    // Components in a cycle never become free.
    let mut free = vec![false; components.len()];
    loop {
        let next = (0..free.len()).find(|&at| !free[at] && orders[at].iter().all(|&before| free[before]));
        match next {
            Some(next) => free[next] = true,
            None => break,
        }
    }
    match free.iter().position(|free| !free) {
        Some(at) => Err(wrong(&components[at], &components[at].after.join(", "))),
        None => Ok(orders),
    }
}
