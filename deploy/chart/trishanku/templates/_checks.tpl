{{/* Fails if a value sets what the chart sets: YAML and server-side apply allow no key twice. */}}
{{- define "trishanku.checks" -}}
{{- range list "containers" "serviceAccount" "serviceAccountName" }}
{{- if hasKey ($.Values.pod | default dict) . }}
{{- fail (printf "pod.%s is set by the chart: remove it from the values" .) }}
{{- end }}
{{- end }}
{{- $set := dict "POD_NAMESPACE" "remove it" "LOG_FORMAT" "set log.format instead" "LOG_LEVEL" "set log.level instead" }}
{{- range $name, $_ := .Values.defaultImages }}
{{- $_ := set $set (printf "DEFAULT_%s_IMAGE" (upper $name)) (printf "set defaultImages.%s instead" $name) }}
{{- end }}
{{- if .Values.tracing.enabled }}
{{- $_ := set $set "OTEL_EXPORTER_OTLP_ENDPOINT" "set tracing.endpoint instead" }}
{{- $_ := set $set "OTEL_TRACES_SAMPLER" "disable tracing.enabled to choose another sampler" }}
{{- $_ := set $set "OTEL_TRACES_SAMPLER_ARG" "set tracing.ratio instead" }}
{{- end }}
{{- if .Values.namespaced.enabled }}
{{- $_ := set $set "METRICS_BIND_ADDRESS" "use the flag --metrics-bind-address in extraArgs instead" }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasKey $set .name }}
{{- fail (printf "extraEnv: %s is set already: %s" .name (get $set .name)) }}
{{- end }}
{{- $_ := set $set .name "keep one of the two entries" }}
{{- end }}
{{- $flags := dict "--leader-elect" "remove it" }}
{{- if .Values.monitoring.enabled }}
{{- $_ := set $flags "--metrics-bind-address" "disable monitoring.enabled to choose another address" }}
{{- end }}
{{- if .Values.namespaced.enabled }}
{{- $_ := set $flags "--namespaces" "disable namespaced.enabled to choose other namespaces" }}
{{- $_ := set $flags "--allow-own-namespace" "remove it" }}
{{- end }}
{{- if .Values.injection.enabled }}
{{- $_ := set $flags "--inject-pods" "remove it" }}
{{- end }}
{{- range .Values.extraArgs }}
{{- $flag := first (splitList "=" .) }}
{{- if hasKey $flags $flag }}
{{- fail (printf "extraArgs: the chart sets %s: %s" $flag (get $flags $flag)) }}
{{- end }}
{{- end }}
{{- end }}
