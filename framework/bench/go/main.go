// The controller of pairs, on controller-runtime. It does the same as src/bin/pairs-framework.rs and src/bin/pairs-kube-runtime.rs.
package main

import (
	"flag"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

func main() {
	address := flag.String("metrics-bind-address", "", "address of /metrics")
	concurrency := flag.Int("concurrency", 10, "objects at a time")
	resync := flag.Int("resync", 36000, "seconds between resyncs")
	strip := flag.Bool("strip-managed-fields", false, "cache objects without their managedFields, which is not the default of controller-runtime")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(*address, *concurrency, time.Duration(*resync)*time.Second, *strip); err != nil {
		ctrl.Log.Error(err, "cannot run")
		os.Exit(1)
	}
}

func run(address string, concurrency int, resync time.Duration, strip bool) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	// As in the other programs: the same encoding, without compression. There is no rate limit by default.
	config.ContentType = runtime.ContentTypeJSON
	config.DisableCompression = true

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(AddToScheme(scheme))
	kept := cache.Options{ByObject: map[client.Object]cache.ByObject{&Pair{}: {SyncPeriod: &resync}}}
	if strip {
		kept.DefaultTransform = cache.TransformStripManagedFields()
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: address},
		Cache:   kept,
	})
	if err != nil {
		return err
	}
	// A changed status triggers nothing, but a resync does: it is an update from an object to itself.
	resyncs := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
	}}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Pair{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, resyncs))).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Secret{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
