package main

import (
	"fmt"
	"slices"
	"strings"
)

// folder is the part of etcd keys, below its prefix, where kube-apiserver stores the objects of a resource.
type folder struct {
	// "apps/Deployment", or "Pod" for the core group. Several kinds may share a folder.
	Kinds      []string `json:"kinds"`
	Namespaced bool     `json:"namespaced,omitempty"`
}

// renamed are the resources that kube-apiserver does not store under their own names:
// SpecialDefaultResourcePrefixes in k8s.io/kubernetes/pkg/kubeapiserver.
var renamed = map[string]string{
	"endpoints":              "services/endpoints",
	"ingresses":              "ingress",
	"nodes":                  "minions",
	"replicationcontrollers": "controllers",
	"services":               "services/specs",
}

// ownServer are the groups with a separate API server inside kube-apiserver, which puts the group before the resource.
var ownServer = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}

func foldersOf(resources map[string]kind) (map[string]*folder, error) {
	made := make(map[string]*folder)
	for path, of := range resources {
		// /apis/GROUP/VERSION/namespaces/{namespace}/RESOURCE/{name}
		parts := strings.Split(path, "/")
		resource := parts[len(parts)-2]
		name := resource
		if to := renamed[resource]; to != "" {
			name = to
		}
		if slices.Contains(ownServer, of.Group) {
			name = of.Group + "/" + name
		}
		kind := of.Kind
		if of.Group != "" {
			kind = of.Group + "/" + kind
		}
		namespaced := strings.Contains(path, "/namespaces/{namespace}/")
		switch found := made[name]; {
		case found == nil:
			made[name] = &folder{[]string{kind}, namespaced}
		case found.Namespaced != namespaced:
			return nil, fmt.Errorf("%s: has both namespaced and cluster-scoped kinds", name)
		case !slices.Contains(found.Kinds, kind):
			found.Kinds = append(found.Kinds, kind)
			slices.Sort(found.Kinds)
		}
	}
	return made, nil
}
