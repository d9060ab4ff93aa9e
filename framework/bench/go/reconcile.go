package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const manager = client.FieldOwner("pairs")

type reconciler struct {
	client.Client
}

// Reconcile applies the objects that differ from the desired state, and writes the status if it changed.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pair Pair
	if err := r.Get(ctx, request.NamespacedName, &pair); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.applySettings(ctx, &pair); err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot apply the settings: %w", err)
	}
	if err := r.applyKey(ctx, &pair); err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot apply the key: %w", err)
	}
	return ctrl.Result{}, r.writeStatus(ctx, &pair)
}

func (r *reconciler) applySettings(ctx context.Context, pair *Pair) error {
	wanted := map[string]string{
		"colour": pair.Spec.Colour, "note": pair.Spec.Note, "size": strconv.FormatInt(pair.Spec.Size, 10),
	}
	var live corev1.ConfigMap
	err := r.Get(ctx, client.ObjectKeyFromObject(pair), &live)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && maps.Equal(live.Data, wanted) && metav1.IsControlledBy(&live, pair) {
		return nil
	}
	settings := corev1ac.ConfigMap(pair.Name, pair.Namespace).WithOwnerReferences(owner(pair)).WithData(wanted)
	return r.Apply(ctx, settings, manager, client.ForceOwnership)
}

func (r *reconciler) applyKey(ctx context.Context, pair *Pair) error {
	wanted := map[string][]byte{"key": fmt.Appendf(nil, "%s:%d", pair.Spec.Colour, pair.Spec.Size)}
	var live corev1.Secret
	err := r.Get(ctx, client.ObjectKeyFromObject(pair), &live)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && maps.EqualFunc(live.Data, wanted, bytes.Equal) && metav1.IsControlledBy(&live, pair) {
		return nil
	}
	key := corev1ac.Secret(pair.Name, pair.Namespace).WithOwnerReferences(owner(pair)).WithData(wanted)
	return r.Apply(ctx, key, manager, client.ForceOwnership)
}

func owner(pair *Pair) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().
		WithAPIVersion(GroupVersion.String()).WithKind("Pair").WithName(pair.Name).WithUID(pair.UID).
		WithController(true).WithBlockOwnerDeletion(true)
}

func (r *reconciler) writeStatus(ctx context.Context, pair *Pair) error {
	ready := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Succeeded", ObservedGeneration: pair.Generation,
	}
	changed := meta.SetStatusCondition(&pair.Status.Conditions, ready)
	if !changed && pair.Status.ObservedGeneration == pair.Generation {
		return nil
	}
	condition := meta.FindStatusCondition(pair.Status.Conditions, "Ready")
	status := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": GroupVersion.String(),
		"kind":       "Pair",
		"metadata":   map[string]any{"namespace": pair.Namespace, "name": pair.Name, "uid": string(pair.UID)},
		"status": map[string]any{
			"observedGeneration": pair.Generation,
			"conditions": []any{map[string]any{
				"type": condition.Type, "status": string(condition.Status), "reason": condition.Reason,
				"message": condition.Message, "observedGeneration": condition.ObservedGeneration,
				"lastTransitionTime": condition.LastTransitionTime.UTC().Format(time.RFC3339),
			}},
		},
	}}
	return r.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(status), manager, client.ForceOwnership)
}
