//! Harness for scenarios against a real kube-apiserver on gitcd.
