{{/*
The names of the objects do not depend on the release: CRDs and admission policies are
cluster-scoped, and the manager's RBAC rules refer to one of the policies by name.
*/}}

{{- define "nslifecycle.labels" -}}
app.kubernetes.io/name: nslifecycle
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* The labels of the Pods of the Deployment with the given name, without the prefix. */}}
{{- define "nslifecycle.selector" -}}
app.kubernetes.io/name: nslifecycle
control-plane: {{ . }}
{{- end }}

{{- define "nslifecycle.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The flags of the main Deployment. The flag --controllers can be repeated, as in config/. */}}
{{- define "nslifecycle.mainFlags" -}}
- {{ printf "--controllers=%s,-admission" .Values.controllers | quote }}
{{- if ne .Values.sources.namespace "nslifecycle-sources" }}
- --source-namespace={{ .Values.sources.namespace }}
{{- end }}
{{- with .Values.namespaceSelector }}
- {{ printf "--namespace-selector=%s" . | quote }}
{{- end }}
{{- if .Values.webhooks.enabled }}
- --webhook-bind-address=:{{ .Values.webhooks.port }}
{{- if ne .Values.hold.duration "10s" }}
- --hold-duration={{ .Values.hold.duration }}
{{- end }}
{{- if ne (int64 .Values.hold.maxWrites) 25 }}
- --hold-max-writes={{ int64 .Values.hold.maxWrites }}
{{- end }}
{{- if ne (int64 .Values.hold.maxWritesPerUser) 5 }}
- --hold-max-writes-per-user={{ int64 .Values.hold.maxWritesPerUser }}
{{- end }}
{{- end }}
{{- if .Values.finalization.separate }}
- --controllers=-finalization,-diagnosis
{{- else if not .Values.finalization.enabled }}
- --controllers=-finalization
{{- end }}
{{- end }}

{{- define "nslifecycle.admissionFlags" -}}
- --leader-elect-resource-name=admission.nslifecycle.dev
- --controllers=admission
{{- if and .Values.webhooks.enabled .Values.webhooks.certManager.enabled }}
- --webhook-certificate-rotation=false
{{- end }}
{{- end }}

{{/* The flags of all Deployments, for all values that differ from the defaults. */}}
{{- define "nslifecycle.arguments" -}}
{{- if ne .Values.namespaceFinalizer "kubernetes" }}
- {{ printf "--namespace-finalizer=%s" .Values.namespaceFinalizer | quote }}
{{- end }}
{{- if ne .Values.finalizationGracePeriod "Auto" }}
- {{ printf "--finalization-grace-period=%s" .Values.finalizationGracePeriod | quote }}
{{- end }}
{{- if ne .Values.logLevel "info" }}
- --log-level={{ .Values.logLevel }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A generated file with the namespaces and the service of this release. */}}
{{- define "nslifecycle.generated" -}}
{{- $root := index . 0 -}}
{{- $root.Files.Get (index . 1)
      | replace "namespace: nslifecycle-system" (printf "namespace: %s" $root.Release.Namespace)
      | replace "namespace: nslifecycle-sources" (printf "namespace: %s" $root.Values.sources.namespace)
      | replace "app.kubernetes.io/managed-by: kustomize"
                (printf "app.kubernetes.io/managed-by: %s" $root.Release.Service) -}}
{{- end }}
