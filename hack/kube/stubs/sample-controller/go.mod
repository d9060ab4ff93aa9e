// A stub for a module that is not published at the version that Kubernetes
// requires. Nothing that is built here imports it.
module k8s.io/sample-controller
