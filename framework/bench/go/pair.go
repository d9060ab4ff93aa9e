package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of Pair.
var GroupVersion = schema.GroupVersion{Group: "bench.trishanku.org", Version: "v1"}

// AddToScheme makes the kind known.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Pair{}, &PairList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// PairSpec is what the settings of a thing and its key are made of.
type PairSpec struct {
	Colour string `json:"colour"`
	Size   int64  `json:"size"`
	Note   string `json:"note"`
}

// PairStatus tells whether both are there.
type PairStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Pair is the kind.
type Pair struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PairSpec   `json:"spec"`
	Status PairStatus `json:"status,omitempty"`
}

// PairList is many of them.
type PairList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Pair `json:"items"`
}

// DeepCopyInto is what a generator would write, as are those below.
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

// DeepCopyObject makes a copy.
func (in *Pair) DeepCopyObject() runtime.Object {
	out := new(Pair)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject makes a copy.
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
