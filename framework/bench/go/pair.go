package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of Pair.
var GroupVersion = schema.GroupVersion{Group: "bench.trishanku.org", Version: "v1"}

// AddToScheme registers the kind.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Pair{}, &PairList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// PairSpec has the settings of a thing, from which its ConfigMap and its key are derived.
type PairSpec struct {
	Colour string `json:"colour"`
	Size   int64  `json:"size"`
	Note   string `json:"note"`
}

// PairStatus shows whether both objects exist.
type PairStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Pair is an object of the kind.
type Pair struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PairSpec   `json:"spec"`
	Status PairStatus `json:"status,omitempty"`
}

// PairList is a list of pairs.
type PairList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pair `json:"items"`
}

// DeepCopyInto copies a pair, as generated code would; so do the functions below.
func (in *Pair) DeepCopyInto(out *Pair) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(in.Status.Conditions))
		for i := range in.Status.Conditions {
			in.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
		}
	}
}

// DeepCopyObject returns a copy.
func (in *Pair) DeepCopyObject() runtime.Object {
	out := new(Pair)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy.
func (in *PairList) DeepCopyObject() runtime.Object {
	out := new(PairList)
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items != nil {
		out.Items = make([]Pair, len(in.Items))
		for i := range in.Items {
			in.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}
