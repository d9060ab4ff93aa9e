// Stands in for a module that is not published at the version which Kubernetes
// requires. Nothing that we build imports it.
module k8s.io/sample-cli-plugin
