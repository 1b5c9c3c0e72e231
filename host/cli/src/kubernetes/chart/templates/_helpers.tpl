{{- /* The labels of every object, also used to select the Pods. */}}
{{- define "admittance.labels" -}}
app.kubernetes.io/name: admittance
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* The labels and annotations of an object. */}}
{{- define "admittance.metadata" -}}
labels:
  {{- include "admittance.labels" . | nindent 2 }}
  {{- with .Values.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The facts about the definitions and the configuration that `admittance kubernetes chart` wrote. */}}
{{- define "admittance.installation" -}}
{{- .Files.Get "files/installation.yaml" }}
{{- end }}

{{- /* The name of the Secret with the certificate. */}}
{{- define "admittance.tlsSecret" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" .Release.Name) }}
{{- end }}
